"""What the guide to the Hub shows works, against a stand-in of the Hub."""

import re
import shlex
from pathlib import Path

import pytest

from multimdm.cli.main import main
from support.hub_stand_in import hub_stand_in
from support.tiny_models import tales_model

TEXT = (Path(__file__).parents[2] / "docs" / "hub.md").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of the Hub's client
def test_commands_and_snippets(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tales_model().save("runs/tales-mdlm/model")
    lines = re.findall(r"^multimdm (.*)$", TEXT, flags=re.MULTILINE)
    assert [line.split()[0] for line in lines] == ["evaluate", "push", "push", "card"]
    snippets = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    assert len(snippets) == 5
    with hub_stand_in(monkeypatch, tmp_path / "cache") as hub:
        for line in lines:
            words = shlex.split(line.replace("--steps 4 8 16", "--steps 1 --num 2"))
            assert main(words) == 0, words
        assert b"GenPPL is by the judge `tales`" in (hub.repositories["me/tales"].files("main") or {})["README.md"]
        assert Path("cards/README.md").exists()
        names: dict = {}
        for snippet in snippets:
            exec(snippet, names)
    assert set(hub.repositories["me/tales"].branches) == {"main", "dev"}
    assert Path("runs/half/model.safetensors").exists()
    assert names["sample"].shape == (2, 48)
    assert "Lily raced to the harbor" in capsys.readouterr().out
