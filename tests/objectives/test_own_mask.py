"""Every objective reads own masks exactly once: a network of contexts under a process that reads them has the loss and
gradient of a network that has read them under one that takes its predictions for posteriors."""

import pytest
import torch
from torch import Tensor

from multimdm.evaluation.likelihood import log_likelihood_bound
from multimdm.objectives import Batch, Consistency, ConsistencySettings, Elbo, Sdtt, SdttSettings
from multimdm.objectives.base import rows_on
from multimdm.process import MultiMask, Process, Schedule, Streams
from support.tabular import Table, random_table

V, M, B = 7, 3, 64
PLAIN, READ = (MultiMask(V, M, Schedule(rho=0.7), readout=readout) for readout in ("posterior", "context"))
S = READ.num_states
STATES = torch.cartesian_prod(torch.arange(S), torch.arange(S)).view(S, S, 2)


def contexts(seed: int = 0, told: bool = False) -> tuple[Table, Tensor]:
    """Logits that move with the time; if they are told, with the evidence of the own mask in them."""
    start = random_table(READ, seed).requires_grad_()
    slope = random_table(READ, seed + 100)

    def at(t: float) -> Tensor:
        logits = start + t * slope
        return READ.posterior_logits(logits, STATES, t) if told else logits

    return Table(at), start


def batch() -> Batch:
    ids = torch.randint(0, V, (B, 2), generator=torch.Generator().manual_seed(1))
    return Batch(ids, None, torch.linspace(0.02, 0.98, B, dtype=torch.float64), Streams.spawn(4, B), 50, 100)


def consistency(**options):
    settings = ConsistencySettings(delta=0.1, rounds=2, **options)
    return lambda process: Consistency(process, settings)


OBJECTIVES = {
    "elbo": Elbo,
    "skip": consistency(),
    "cross_entropy": consistency(visible_target="cross_entropy", divergence="forward_kl"),
    "smoothed": consistency(visible_target="smoothed"),
    "markov": consistency(coupling="markov"),
    "sdtt": lambda process: Sdtt(process, SdttSettings(delta=0.1, rounds=2)),
    "sdtt, three steps": lambda process: Sdtt(
        process, SdttSettings(delta=0.1, rounds=2, teacher_steps=3, divergence="mse")
    ),
}


def loss_and_gradient(make, process: Process, told: bool) -> tuple[Tensor, Tensor]:
    student, weights = contexts(told=told)
    objective = make(process)
    if not isinstance(objective, Elbo):
        objective = objective.taught_by(contexts(seed=1, told=told)[0])
    loss = objective(student, batch()).loss
    return loss.detach(), torch.autograd.grad(loss, weights)[0]


@pytest.mark.parametrize("make", OBJECTIVES.values(), ids=OBJECTIVES)
def test_it_does_not_matter_who_reads_the_mask(make):
    found, expected = loss_and_gradient(make, READ, told=False), loss_and_gradient(make, PLAIN, told=True)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)
    never, twice = loss_and_gradient(make, PLAIN, told=False), loss_and_gradient(make, READ, told=True)
    for wrong in (never, twice):
        assert abs(float(wrong[0] - expected[0])) > 1e-3 * abs(float(expected[0]))


def test_nor_in_the_bounds_that_are_reported():
    given = batch()
    x_t = READ.corrupt(given.ids, given.times, given.generator)
    nelbos, bounds = [], []
    for process, told in ((READ, False), (PLAIN, True), (PLAIN, False)):
        network = stacking(contexts(told=told)[0])
        with torch.no_grad():
            rows = rows_on(process.path_to(), given.ids, x_t, given.times, process.active(x_t), None)
            nelbos.append(rows.by_sequence(network))
        bounds.append(log_likelihood_bound(network, process, torch.tensor([2, 5]), 0, 32, 0, 32).value)
    torch.testing.assert_close(nelbos[0], nelbos[1], rtol=1e-9, atol=1e-10)
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-9)
    assert abs(bounds[2] - bounds[1]) > 1e-2
    assert float((nelbos[2] - nelbos[1]).abs().max()) > 1e-2


def stacking(table: Table):
    """The table as evaluation calls it, with one answer per row."""
    return lambda x_t, t, positions, valid, reduce: reduce(table(x_t, t, positions), slice(0, int(positions.sum())))
