"""A file of figures that is none is refused in a sentence."""

import pytest

from multimdm.report.reproduction_report import read_study


@pytest.mark.parametrize("content", ["{}", '{"studies": 3}', '{"studies": [{"title": "Masks"}]}', "[]"])
def test_other_files_are_refused(content, tmp_path):
    path = tmp_path / "study.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"study\.json (is no study that multimdm reproduce wrote|must hold)"):
        read_study(path)
