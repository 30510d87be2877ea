"""The bound of a log-likelihood, against the exact value of a model that knows the answer."""

import math

import pytest
import torch

from multimdm.evaluation.likelihood import log_likelihood_bound
from multimdm.objectives.base import rows_on
from multimdm.objectives.times import stratified_times
from multimdm.process import MultiMask, Schedule, Streams

V, L = 6, 5


class Independent:
    """Every position has the same law, whatever stands around it: the bound is tight."""

    def __init__(self) -> None:
        self.log_probs = torch.log_softmax(torch.randn(V, generator=torch.Generator().manual_seed(0)), -1)

    def __call__(self, x_t, t, positions, valid, reduce):
        n = int(positions.sum())
        return reduce(self.log_probs.expand(n, -1), slice(0, n))


def test_the_exact_value_of_an_independent_model():
    network, ids = Independent(), torch.tensor([0, 3, 2, 5, 1])
    for given in (0, 2):
        bound = log_likelihood_bound(network, MultiMask(V, 1), ids, given, 400, 0, 500)
        exact = float(network.log_probs[ids[given:]].sum())
        assert abs(bound.value - exact) < 4 * bound.standard_error + 1e-6
        assert bound.standard_error < 0.2


@pytest.mark.parametrize("process", [MultiMask(V, 1), MultiMask(V, 3), MultiMask(V, 3, Schedule(0.7, "cosine"))])
def test_it_is_the_integral_over_time(process):
    """Against the loss as it stands, at every time by itself, which is the same in the mean but varies far more."""

    def network(x_t, t, positions, valid, reduce):  # it depends on how much is hidden, so that the law of k counts
        hidden = (x_t >= V).double().mean(1, keepdim=True)
        logits = torch.log_softmax(Independent().log_probs * (2 - hidden)[..., None], -1).expand(*x_t.shape, V)
        return reduce(logits[positions], slice(0, int(positions.sum())))

    ids = torch.tensor([0, 3, 2, 5, 1])
    bound = log_likelihood_bound(network, process, ids, 1, 4000, 0, 4000)
    t, x_0 = stratified_times(100_000), ids.expand(100_000, -1)
    x_t = process.corrupt(x_0, t, Streams.spawn(1, 100_000))
    x_t[:, 0] = ids[0]
    plain = -rows_on(process.path_to(), x_0, x_t, t, process.active(x_t), None).by_sequence(network).sum(0)
    error = math.hypot(bound.standard_error, float(plain.std()) / math.sqrt(len(plain)))
    assert abs(bound.value - float(plain.mean())) < 4 * error
    assert bound.standard_error < 0.1


def test_it_does_not_depend_on_the_batch_size():
    network, ids, process = Independent(), torch.tensor([0, 3, 2, 5, 1]), MultiMask(V, 3)
    one, other = (log_likelihood_bound(network, process, ids, 1, 64, 7, size) for size in (64, 5))
    assert one.value == pytest.approx(other.value)
    assert one.draws == 64


def test_nothing_to_tell():
    bound = log_likelihood_bound(Independent(), MultiMask(V, 1), torch.tensor([0, 3]), 2, 4, 0, 4)
    assert (bound.value, bound.draws) == (0.0, 4)
    assert math.isfinite(bound.standard_error)
