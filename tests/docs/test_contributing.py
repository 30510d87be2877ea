"""The worked examples for contributors run, and what contributors are told to touch is there."""

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.mark.unchecked  # the examples have no annotations to check
def test_the_examples_run():
    names: dict = {}
    for snippet in re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL):
        exec(snippet, names)
    assert set(names["made"].calls.tolist()) == {2}
    assert not bool(torch.isnan(names["sums"].loss))
    assert {"Strided", "HiddenTokens", "contiguous"} <= set(names)


def test_files_and_targets_exist():
    for name in re.findall(r"`((?:samplers|objectives|process|pipeline|training)/\w*(?:\.py)?)`", TEXT):
        assert (ROOT / "src" / "multimdm" / name).exists(), name
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`make ([a-z-]+)`", TEXT):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
