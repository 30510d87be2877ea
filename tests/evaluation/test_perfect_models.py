"""Perfect models by name: what a name means, and how they are told apart."""

import pytest
import torch

from multimdm.evaluation.perfect_models import is_perfect, open_perfect, perfect_model
from multimdm.evaluation.settings import Drawing
from multimdm.evaluation.store import Store
from multimdm.evaluation.subject import Subject
from multimdm.process import MultiMask, Schedule, Uniform, clustered, random_balanced
from support.tiny_models import TALES, causal_tales_model, tales_model

V = TALES.vocab_size
NAMES = {
    "perfect": MultiMask(V, 1),
    "perfect:M=20,rho=0.5": MultiMask(V, 20, Schedule(0.5)),
    "perfect:M20,rho0.5": MultiMask(V, 20, Schedule(0.5)),
    "perfect:M=3,random,cosine": MultiMask(V, 3, Schedule(1.0, "cosine"), random_balanced(V, 3)),
    "perfect:M=6,context": MultiMask(V, 6, readout="context"),
    "perfect:M=4,tied": MultiMask(V, 4).tied(noise_shown=True),
}


@pytest.mark.parametrize(("name", "process"), NAMES.items())
def test_a_name_says_all_of_the_process(name, process):
    assert is_perfect(name)
    model = open_perfect(name)
    assert repr(model.process) == repr(process)
    assert isinstance(model.process, MultiMask)
    assert torch.equal(model.process.assignment, process.assignment)


def test_other_names():
    assert isinstance(open_perfect("perfect:uniform").process, Uniform)
    assert open_perfect("perfect:epsilon=1e-4").network.epsilon == 1e-4
    frequency = open_perfect("perfect:M=5,frequency").process
    assert isinstance(frequency, MultiMask)
    assert not torch.equal(frequency.assignment, open_perfect("perfect:M=5").process.assignment)  # pyright: ignore
    assert not is_perfect("perfectly")
    assert not is_perfect("runs/perfect")


def test_the_process_of_a_checkpoint(tmp_path):
    model = tales_model(num_masks=2)
    assignment = clustered(torch.randn(V, 3, generator=torch.Generator().manual_seed(0)), 2, 0)
    model.process = MultiMask(V, 2, Schedule(0.7), assignment)
    model.save(tmp_path / "model")
    found = open_perfect(f"perfect:like={tmp_path / 'model'}").process
    assert isinstance(found, MultiMask)
    assert found.schedule.rho == 0.7
    assert torch.equal(found.assignment, assignment)


def test_a_directory_of_that_name_is_a_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "perfect").mkdir()
    assert not is_perfect("perfect")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("perfect:masks=20", "'masks=20' is none of M=20, rho=0.5"),
        ("perfect:M=2.5", "M must be a whole number; got 2.5"),
        ("perfect:M=e", "'M=e' must have a number; got 'e'"),
        ("perfect:uniform,M=3", "uniform states have no masks"),
        ("perfect:M=405", "num_masks must be at most vocab_size, 404"),
        ("perfect:epsilon=0", "epsilon must be from"),
    ],
)
def test_what_makes_no_sense_is_refused(name, message):
    with pytest.raises(ValueError, match=message):
        open_perfect(name)


def test_fingerprints_tell_them_apart():
    names = ["perfect", "perfect:M=2", "perfect:M=2,rho=0.5", "perfect:M=2,random", "perfect:M=2,tied"]
    names += ["perfect:uniform", "perfect:epsilon=1e-4", "perfect:cosine"]
    prints = [open_perfect(name).fingerprint for name in names]
    assert len(set(prints)) == len(names)
    assert open_perfect("perfect:M20,rho0.5").fingerprint == open_perfect("perfect:M=20,rho=0.5").fingerprint


def test_it_is_a_subject_like_others():
    subject = Subject.open("perfect:M=20,rho=0.5", None, Drawing(num=2), Store())
    assert subject.label == "perfect:M=20,rho=0.5"
    assert subject.length == 48
    assert subject.description == (
        "multi-mask diffusion, M = 20, rho = 0.5; exact predictions in place of a network (Tales with epsilon = 0.001)"
    )
    subject.check(3)


def test_there_is_nothing_to_save(tmp_path):
    with pytest.raises(ValueError, match="no weights to save"):
        open_perfect("perfect").save(tmp_path / "model")


def test_processes_without_one_are_refused():
    with pytest.raises(ValueError, match="for masks and for uniform states; got None"):
        perfect_model(causal_tales_model().process, TALES)
