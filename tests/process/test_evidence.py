"""Evidence is the column of the marginals that belongs to the state, up to a factor per position."""

import pytest
import torch

from multimdm.process import MultiMask, Schedule, Uniform, random_balanced
from multimdm.process.evidence import evidence, tied_evidence

V = 6
PROCESSES = {
    "one mask": MultiMask(V, 1),
    "three": MultiMask(V, 3, Schedule(0.5)),
    "as many as tokens": MultiMask(V, V, Schedule(2.0, "cosine"), random_balanced(V, V)),
    "uniform": Uniform(V, Schedule(kind="cosine")),
}


@pytest.mark.parametrize("t", [0.01, 0.4, 1.0])
@pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
def test_it_is_the_column_of_the_marginals(process, t):
    time = torch.tensor(t, dtype=torch.float64)
    states = torch.arange(process.num_states)
    if t == 1 and isinstance(process, MultiMask):
        states = states[V:]  # no token is left
    columns = process.marginal(torch.arange(V), time).T[states]
    found = evidence(process, states, time)
    torch.testing.assert_close(found, columns / columns.amax(-1, keepdim=True), rtol=1e-12, atol=1e-14)


def test_times_may_differ_by_sequence_and_position():
    process = PROCESSES["three"]
    x_t = torch.tensor([[6, 7, 1], [8, 6, 7]])
    t = torch.tensor([[0.1, 0.9, 0.5], [0.3, 0.2, 0.7]], dtype=torch.float64)
    for row in range(2):
        for place in range(3):
            alone = evidence(process, x_t[row, place], t[row, place])
            torch.testing.assert_close(evidence(process, x_t, t)[row, place], alone)
    torch.testing.assert_close(evidence(process, x_t, t[:, 0])[1, 2], evidence(process, x_t[1, 2], t[1, 0]))


@pytest.mark.parametrize("t", [0.05, 0.6, 1.0])
def test_on_paths_with_a_given_end(t):
    """x_t is a with probability alpha, else m(a) with probability beta, else x_1."""
    process = MultiMask(V, 3, Schedule(0.5)).tied()
    x_t, end = torch.cartesian_prod(torch.arange(V, V + 3), torch.arange(V, V + 3)).T
    beta = process.schedule(torch.tensor(t, dtype=torch.float64)).beta
    home = process.designated_mask(torch.arange(V))
    law = beta * (home == x_t[:, None]).double() + (1 - beta) * (end == x_t)[:, None].double()
    found = tied_evidence(process, x_t, end, torch.ones_like(x_t, dtype=torch.bool), t)
    possible = law.amax(-1) > 0  # at t = 1 every state is its end
    torch.testing.assert_close(found[possible], (law / law.amax(-1, keepdim=True))[possible], rtol=1e-12, atol=1e-14)
    unknown = tied_evidence(process, x_t, end, torch.zeros_like(x_t, dtype=torch.bool), t)
    torch.testing.assert_close(unknown, evidence(process, x_t, t))
