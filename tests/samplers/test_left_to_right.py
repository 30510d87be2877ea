"""Left-to-right decoding: runs of sure positions; one position per call draws the exact law."""

from itertools import product

import pytest
import torch
from torch import Tensor

from multimdm.process import MultiMask, Streams, Uniform
from multimdm.samplers import Choice, LeftToRight, generate
from multimdm.samplers.left_to_right import first_run
from support.statistics import MUTANT, REJECT, p_of_draws

V, L = 3, 3


class Exact:
    """p(x_0^l | visible tokens) under a joint law of three tokens and one mask, by enumeration."""

    def __init__(self) -> None:
        drawn = torch.rand(V, V, V, generator=torch.Generator().manual_seed(0), dtype=torch.float64) ** 3
        self.law = drawn / drawn.sum()
        self.table = torch.stack([self.predictions(state) for state in product(range(V + 1), repeat=L)])
        self.seen: list[Tensor] = []

    def predictions(self, state: tuple[int, ...]) -> Tensor:
        """[L, V]."""
        law = self.law
        for place, token in enumerate(state):
            if token < V:
                keep = torch.zeros(V, dtype=torch.float64)
                keep[token] = 1
                law = law * keep.view([-1 if axis == place else 1 for axis in range(L)])
        sums = [law.sum([axis for axis in range(L) if axis != place]) for place in range(L)]
        return torch.stack([one / one.sum() for one in sums])

    def __call__(self, x, t, positions, valid, reduce):
        self.seen.append(x)
        code = (x * (V + 1) ** torch.arange(L - 1, -1, -1)).sum(1)
        logits = self.table[code][positions].log()
        return reduce(logits, slice(0, len(logits)))


def draw(network: Exact, step: LeftToRight, num: int = 20_000) -> Tensor:
    nothing = torch.zeros(num, L, dtype=torch.long)
    made = generate(network, MultiMask(V, 1), step, nothing, generator=torch.Generator().manual_seed(1))
    return (made.ids * V ** torch.arange(L - 1, -1, -1)).sum(1)


def test_one_position_per_call_draws_the_exact_law():
    network = Exact()
    codes = draw(network, LeftToRight(L, threshold=1))
    assert p_of_draws(codes, network.law.flatten()) > REJECT
    for k, x in enumerate(network.seen):
        assert bool((x[:, :k] < V).all())
        assert bool((x[:, k:] == V).all())
    for mutant in (LeftToRight(1), LeftToRight(L, threshold=0.3)):  # positions that are not sure are drawn together
        assert p_of_draws(draw(network, mutant), network.law.flatten()) < MUTANT


def test_a_run_ends_at_the_first_position_that_is_not_sure():
    sure = torch.tensor([[1, 1, 0, 1, 1], [0, 1, 1, 1, 1], [0, 0, 1, 0, 1], [1, 1, 1, 1, 1]]).bool()
    hidden = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 1, 0, 1], [0, 1, 0, 1, 0]]).bool()
    runs = [first_run(sure, hidden, torch.full((4,), least)).long().tolist() for least in (1, 3)]
    assert runs[0] == [[1, 1, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 1, 0, 1], [0, 1, 0, 1, 0]]
    assert runs[1] == [[1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [0, 0, 1, 0, 1], [0, 1, 0, 1, 0]]


class Table:
    """Random logits for any states of any length."""

    def __init__(self, num_states: int) -> None:
        self.table = torch.randn(num_states, 11, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def __call__(self, x, t, positions, valid, reduce):
        logits = 3 * (self.table[x] + self.table[x].cumsum(1) / 2)[positions]
        return reduce(logits, slice(0, len(logits)))


@pytest.mark.parametrize("process", [MultiMask(11, 1), MultiMask(11, 4), MultiMask(11, 4, tied_noise=True)], ids=repr)
@pytest.mark.parametrize("steps", [1, 3, 7, 16, 40])
def test_so_many_calls_suffice(process, steps):
    given = torch.zeros(5, 16, dtype=torch.long)
    fixed = torch.rand(5, 16, generator=torch.Generator().manual_seed(2)) < 0.2
    made = generate(
        Table(15), process, LeftToRight(steps, threshold=1), given, fixed, generator=Streams.spawn(0, 5), trace=True
    )
    assert int(made.ids.max()) < 11
    assert made.nfe <= steps
    assert made.trace is not None
    for state in made.trace.states:
        hidden = process.active(state) & ~fixed
        assert torch.equal(hidden, hidden.cummax(1).values & ~fixed)  # what is hidden is what comes last


def test_a_threshold_saves_calls():
    nothing = torch.zeros(6, 16, dtype=torch.long)
    process = MultiMask(11, 2)
    patient, quick, at_once = (
        generate(Table(13), process, LeftToRight(16, Choice(0), sure), nothing, generator=Streams.spawn(0, 6)).calls
        for sure in (1, 0.7, 1e-9)
    )
    assert at_once.tolist() == [1] * 6
    assert len(set(quick.tolist())) > 1  # every sequence at its own pace
    assert 1 < int(quick.max()) < int(patient.max()) <= 16


def test_a_process_without_masks_is_refused():
    with pytest.raises(ValueError, match="process must have masks for order='left_to_right'; got Uniform"):
        generate(Table(11), Uniform(11), LeftToRight(3), torch.zeros(2, 4, dtype=torch.long))
