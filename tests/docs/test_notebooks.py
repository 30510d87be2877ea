"""Every cell of the notebooks runs, with fewer steps; and they are kept as they are to be kept."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
ALL = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code(path: Path) -> list[str]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_there_are_two():
    assert [path.stem for path in NOTEBOOKS] == ["first_steps", "own_text"]


@ALL
def test_it_is_a_notebook_without_outputs(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    assert notebook["cells"][0]["source"][0].startswith("# "), "it begins with its title"
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


@pytest.mark.unchecked  # in a process of its own, which the checks do not reach
@ALL
def test_every_cell_runs(path, tmp_path):
    cells = code(path)
    whole = "\n".join(cells)
    short, changed = re.subn(r"^STEPS = \d+", "STEPS = 2", whole, flags=re.MULTILINE)
    assert changed == 1
    script = tmp_path / "cells.py"
    script.write_text(short + '\nprint("the last cell has run")\n', encoding="utf-8")
    environment = {**os.environ, "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error::DeprecationWarning:__main__", str(script)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.endswith("the last cell has run\n")


@ALL
def test_the_first_cell_installs_what_lies_beside_it(path, tmp_path, monkeypatch):
    """Where the package is missing, as on Colab."""
    calls = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("subprocess.run", lambda command, check: calls.append(command))
    with pytest.raises(FileNotFoundError, match="upload its wheel"):
        exec(code(path)[0], {})
    (tmp_path / "multimdm-0.2.0-py3-none-any.whl").touch()
    exec(code(path)[0], {})
    exec(code(path)[0].replace('SOURCE = ""', 'SOURCE = "git+https://example.org/x"'), {})
    assert [call[-1] for call in calls] == [
        f"multimdm @ {(tmp_path / 'multimdm-0.2.0-py3-none-any.whl').as_uri()}",
        "multimdm @ git+https://example.org/x",
    ]
