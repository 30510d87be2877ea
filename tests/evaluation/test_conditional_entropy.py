import pytest
import torch

from multimdm.evaluation.conditional_entropy import Study, coupled_entropy, entropy, run, unconditioned_entropy
from multimdm.process import MultiMask, Uniform


def test_zipf_entropy_of_the_paper():
    assert float(entropy(Study().prior)) == pytest.approx(3.2198, abs=5e-5)


def test_curves_at_one_half():
    """Against values computed elsewhere, within four standard errors of both."""
    study = Study(masks=(1, 2, 10), steps=2, samples=100_000)
    points = {p.curve: p for p in run(study) if p.time == 0.5}
    assert points["uniform unconditioned"].value == pytest.approx(2.0288, abs=5e-5)
    assert points["masked unconditioned, once masked"].value == pytest.approx(3.2198, abs=5e-5)
    assert points["masked unconditioned, on average"].value == pytest.approx(3.2198 / 2, abs=5e-5)
    elsewhere = {
        "uniform gumbel": 1.406,
        "uniform gaussian": 1.339,
        "multimask M=1 gumbel": 1.382,
        "multimask M=2 gumbel": 1.183,
        "multimask M=10 gumbel": 0.707,
    }
    for curve, value in elsewhere.items():
        theirs = 0.01 if curve.startswith("multimask") else 0.0  # those values have errors of their own
        error = (points[curve].standard_error ** 2 + theirs**2) ** 0.5
        assert abs(points[curve].value - value) < 4 * error
        assert 0.001 < points[curve].standard_error < 0.01


def test_noise_never_hurts_and_masks_help():
    study = Study(vocab_size=12, masks=(1, 3), steps=4, samples=4000)
    values = {(p.curve, p.time): (p.value, p.standard_error) for p in run(study)}
    for t in (0.25, 0.5, 0.75):
        for process in ("uniform", "multimask M=1", "multimask M=3"):
            value, error = values[f"{process} gumbel", t]
            assert value < values[f"{process} unconditioned", t][0] + 4 * error
        assert values["multimask M=3 gumbel", t][0] < values["multimask M=1 gumbel", t][0]


@pytest.mark.parametrize("process", [Uniform(4), MultiMask(4, 2)], ids=str)
def test_unconditioned_entropy_by_enumeration(process):
    prior = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    joint = prior[:, None] * process.marginal(torch.arange(4), torch.tensor(0.6, dtype=torch.float64))
    posterior = joint / joint.sum(0)
    expected = float((joint.sum(0) * entropy(posterior.T)).sum())
    assert unconditioned_entropy(process, prior, 0.6) == pytest.approx(expected)


def test_coupled_entropy_by_hand():
    prior = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    states = torch.tensor([[7, 7, 2], [0, 7, 7], [0, 1, 2]])
    values = coupled_entropy(lambda t: states, torch.tensor([0, 1, 2]), prior, 0.5)
    two_to_one = float(entropy(torch.tensor([2 / 3, 1 / 3], dtype=torch.float64)))
    assert values.tolist() == pytest.approx([two_to_one, float(torch.tensor(2.0).log()), 0.0])


def test_the_seed_decides():
    study = Study(vocab_size=10, masks=(2,), steps=2, samples=500)
    assert list(run(study)) == list(run(study))
    assert list(run(study)) != list(run(Study(vocab_size=10, masks=(2,), steps=2, samples=500, seed=1)))
