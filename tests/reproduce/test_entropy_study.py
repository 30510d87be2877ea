"""Fig. conditional_entropy from its specification, with few draws."""

from multimdm.evaluation.conditional_entropy import Study
from multimdm.reproduce.entropy_study import EntropyStudy
from multimdm.reproduce.models import Folders
from multimdm.reproduce.workers import do_all


def test_it_is_drawn_once(tmp_path):
    folders = Folders(tmp_path / "tales")
    study = EntropyStudy("conditional-entropy", folders, Study(vocab_size=5, masks=(1, 2), steps=2, samples=20))
    do_all(study.stages(), folders.locks)
    out = study.write()
    assert {path.name for path in out.iterdir()} == {"entropy.csv", "entropy.png"}
    before = (out / "entropy.csv").stat().st_mtime_ns
    do_all(study.stages(), folders.locks)
    assert (out / "entropy.csv").stat().st_mtime_ns == before
