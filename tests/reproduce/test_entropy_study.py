"""Fig. conditional_entropy from its specification, with few draws."""

from multimdm.evaluation.conditional_entropy import Study
from multimdm.reproduce.entropy_study import EntropyStudy
from multimdm.reproduce.places import Places
from multimdm.reproduce.workers import work


def test_it_is_drawn_once(tmp_path):
    places = Places(tmp_path / "tales")
    study = EntropyStudy("conditional-entropy", places, Study(vocab_size=5, masks=(1, 2), steps=2, samples=20))
    work(study.stages(), places.locks)
    out = study.write()
    assert {path.name for path in out.iterdir()} == {"entropy.csv", "entropy.png"}
    before = (out / "entropy.csv").stat().st_mtime_ns
    work(study.stages(), places.locks)
    assert (out / "entropy.csv").stat().st_mtime_ns == before
