"""Every coupling keeps both marginals; what it shares is what it says."""

import pytest
import torch

from multimdm.objectives.coupling import couple
from multimdm.process import MultiMask, Schedule, Streams, Uniform
from support.statistics import MUTANT, REJECT, chi_square_p, p_of_draws

S, T, N = 0.35, 0.7, 100_000
PROCESSES = {"M=1": MultiMask(4, 1), "M=3": MultiMask(5, 3, Schedule(rho=0.6)), "uniform": Uniform(4)}
CASES = [
    (name, coupling)
    for name in PROCESSES
    for coupling in ("gumbel", "gaussian", "markov", "independent")
    if coupling != "gaussian" or name == "uniform"
]


def draw(process, coupling, num=N):
    ids = torch.ones((100, num // 100), dtype=torch.long)
    s, t = (torch.full((100,), time, dtype=torch.float64) for time in (S, T))
    return couple(process, ids, s, t, coupling, Streams.spawn(5, 100))


@pytest.mark.parametrize(("name", "coupling"), CASES)
def test_both_marginals_are_kept(name, coupling):
    process = PROCESSES[name]
    pair = draw(process, coupling)
    for states, time in ((pair.x_s, S), (pair.x_t, T)):
        law = process.marginal(torch.tensor(1), torch.tensor(time, dtype=torch.float64))
        assert p_of_draws(states, law) > REJECT


def joint_counts(process, pair):
    n = process.num_states
    return torch.bincount((pair.x_s * n + pair.x_t).flatten(), minlength=n * n).view(n, n)


@pytest.mark.parametrize("name", PROCESSES)
def test_the_joint_laws_of_the_controls(name):
    """markov: marginal times transition; independent: the product of marginals. Each rejects the other."""
    process = PROCESSES[name]
    s, t = (torch.tensor(time, dtype=torch.float64) for time in (S, T))
    at_s, at_t = process.marginal(torch.tensor(1), s), process.marginal(torch.tensor(1), t)
    chain = at_s[:, None] * process.transition(torch.arange(process.num_states), s, t)
    laws = {"markov": chain, "independent": at_s[:, None] * at_t}
    for coupling, law in laws.items():
        counts = joint_counts(process, draw(process, coupling))
        assert chi_square_p(counts, law) > REJECT
        (other,) = (laws[name] for name in laws if name != coupling)
        assert chi_square_p(counts, other) < MUTANT


@pytest.mark.parametrize("name", ["M=1", "M=3"])
def test_a_shared_path_never_uncovers(name):
    """Going from s to t, nothing that was hidden becomes visible again; independent draws do that."""
    process = PROCESSES[name]
    for coupling, never in (("gumbel", True), ("markov", True), ("independent", False)):
        pair = draw(process, coupling, 10_000)
        uncovered = process.active(pair.x_s) & ~process.active(pair.x_t)
        assert bool(uncovered.any()) is not never


def test_bad_input():
    with pytest.raises(ValueError, match="noise must be 'gumbel' for a masked process"):
        draw(PROCESSES["M=1"], "gaussian")


@pytest.mark.unchecked
def test_an_unknown_coupling():
    with pytest.raises(ValueError, match="must be one of gumbel, gaussian, markov, independent; got"):
        draw(PROCESSES["M=1"], "magic")
