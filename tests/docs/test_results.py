"""Tables in docs/results are those of the figures beside them."""

import json
from pathlib import Path

import pytest

from multimdm.report.reproduction_report import read_study, study_text

RESULTS = Path(__file__).parents[2] / "docs" / "results"
STUDIES = sorted(RESULTS.glob("*.json"))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_tables_are_made_of_the_figures(path):
    assert study_text(read_study(path)) == path.with_suffix(".md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_another_figure_makes_another_table(path, tmp_path):
    data = json.loads(path.read_text(encoding="utf-8"))
    data["studies"][0]["evaluations"][0]["aligned"][0]["measurement"]["gen_ppl"]["value"] *= 1.5
    changed = tmp_path / path.name
    changed.write_text(json.dumps(data), encoding="utf-8")
    assert study_text(read_study(changed)) != path.with_suffix(".md").read_text(encoding="utf-8")
