"""What the README shows must work."""

import re
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_python_snippet_runs():
    (snippet,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    small = snippet.replace("50_257", "257").replace("num_masks=50", "num_masks=5")
    names: dict = {}
    exec(small, names)
    assert names["x_s"].shape == (2, 128)
    assert names["terms"].total.shape == (2, 128)


def test_files_that_it_names_exist():
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (Path(__file__).parents[2] / link).exists(), link
