"""A training step passes the files that the page on architecture lists, no others, and not too many for a reader."""

import re
import sys
from pathlib import Path

import torch

import multimdm
from multimdm.cli.main import main
from multimdm.training import loop

SOURCE = Path(multimdm.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
MOST_FILES = 22
"""Of a step in all: whoever adds one joins others, or says on the page why a new reader has to meet it."""
SHORT = "--train.steps 2 --train.batch-size 2 --log.validation-sequences 2 --log.sample-every 0"
SMALL = "--network.hidden-dim 16 --network.num-blocks 1 --network.num-heads 2"


def test_a_training_step_passes_the_files_that_are_listed(tmp_path, monkeypatch):
    pattern = (
        r"functions of (\d+) files\. It is made of these (\d+):\n(.*?)\n"
        r"The other (\d+) are helpers(.*?)\. A test counts them all, and allows no more than (\d+)\."
    )
    ((in_all, promised, table, number, helpers, most),) = re.findall(pattern, PAGE, flags=re.DOTALL)
    listed = [file for row in table.splitlines() if row for file in re.findall(r"`([\w/]+\.py)`", row.split("|")[1])]
    beneath = re.findall(r"`([\w/]+\.py)`", helpers)
    assert len(listed) == int(promised)
    assert len(beneath) == int(number)
    assert len(listed) + len(beneath) == int(in_all)
    passed = files_of_the_second_step(tmp_path, monkeypatch)
    assert len(passed) <= MOST_FILES == int(most)
    assert passed == {*listed, *beneath}


def files_of_the_second_step(out: Path, monkeypatch) -> set[str]:
    """In which functions are called; the first step also fills what is kept from step to step."""
    passed: set[str] = set()

    def note(frame, event, _):
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(SOURCE):
            passed.add(file.relative_to(SOURCE).as_posix())

    whole = loop._Run._one_step

    def watched(run):
        if run.step == 0:
            return whole(run)
        before = sys.getprofile()
        sys.setprofile(note)
        try:
            return whole(run)
        finally:
            sys.setprofile(before)

    monkeypatch.setattr(loop._Run, "_one_step", watched)
    for device in (torch.cuda, torch.backends.mps):  # a GPU has some files of its own
        monkeypatch.setattr(device, "is_available", lambda: False)
    assert main(["pretrain", "tales-mdlm", *SHORT.split(), *SMALL.split(), "--out", str(out / "run")]) == 0
    return passed
