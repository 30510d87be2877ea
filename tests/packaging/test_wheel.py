"""The wheel holds all that is needed, with no repository around it: code, recipes, the quickstart."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from support.tiny_quickstart import TINY
from support.tiny_reproduction import write_yaml

ROOT = Path(__file__).parents[2]

QUICKSTART = """
from pathlib import Path
import multimdm
from multimdm.reproduce.running import run_quickstart
assert multimdm.__file__.startswith({site!r}), multimdm.__file__
run_quickstart({scale!r}, Path("qs"), 0)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def run(site: Path, *arguments: str) -> str:
    """Python in an empty directory, with the wheel before everything else."""
    place = site.parent / "elsewhere"
    place.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=place, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_recipes_are_found(site):
    options = "--train.steps 1 --train.batch-size 1 --log.validation-sequences 1 --log.sample-every 0"
    assert "holds the model" in run(site, "-m", "multimdm", "pretrain", "tales-mdlm", *options.split())


def test_specifications_are_found(site):
    assert "text-gen-pretrain" in run(site, "-m", "multimdm", "reproduce")
    assert "mdlm-start-seed0" in run(site, "-m", "multimdm", "reproduce", "ablation", "--list")


def test_the_quickstart_runs(site):
    scale = write_yaml(site.parent / "tiny.yaml", TINY)
    run(site, "-c", QUICKSTART.format(site=str(site), scale=scale))
    assert (site.parent / "elsewhere" / "qs" / "report.html").exists()


def test_built_in_models_write(site):
    assert run(site, "-m", "multimdm", "sample", "--num", "1", "--steps", "2").startswith("[1] ")
    assert "tales-mdlm: " in run(site, "-m", "multimdm", "models")
