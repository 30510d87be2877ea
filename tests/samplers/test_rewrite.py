"""Rewriting: the fixed point is what going from left to right draws, and no call is made after it."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from multimdm.process import Mixture, MultiMask, Streams, Uniform
from multimdm.samplers import Ancestral, Choice, Rewrite, generate, time_grid
from support.oracle import pairs
from support.statistics import MUTANT, REJECT, p_of_draws

V, M, L, B = 7, 5, 12, 20
PROCESS = MultiMask(V, M).tied(noise_shown=True)
NOTHING = torch.zeros(B, L, dtype=torch.long)


class Decoder:
    """Surely predicts x^l = r x^{l-1} + noise^l (mod V): from left to right, given the noise. Masks count as 0."""

    def __init__(self, reads: int = 1) -> None:
        self.reads, self.times = reads, []

    def __call__(self, shown: Mixture, t, positions, valid, reduce):
        self.times.append(t)
        x, noise = shown.ids[..., 0], shown.ids[..., 1] - V - M
        before = torch.nn.functional.pad(torch.where(x < V, x, 0), (1, 0))[:, :-1]
        tokens = (self.reads * before + noise) % V
        logits = 100 * torch.nn.functional.one_hot(tokens, V).double()[positions]
        return reduce(logits, slice(0, len(logits)))

    def decoded(self, noise: Tensor) -> Tensor:
        """Token after token."""
        x, before = torch.zeros_like(noise), torch.zeros_like(noise[:, 0])
        for place in range(noise.shape[1]):
            x[:, place] = before = (self.reads * before + noise[:, place] - V) % V
        return x


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_a_decoder_is_followed_to_its_fixed_point_and_no_further(temperature):
    network = Decoder()
    made = generate(network, PROCESS, Rewrite(50, Choice(temperature)), NOTHING, trace=True)
    assert made.trace is not None
    assert torch.equal(made.ids, network.decoded(made.trace.states[0]))
    assert made.nfe == len(network.times) <= L + 1  # at least one more token is settled by every call; one call sees it
    assert network.times == [1.0, *[0.0] * (made.nfe - 1)]
    for k, state in enumerate(made.trace.states[1:], 1):
        assert torch.equal(state[:, :k], made.ids[:, :k])


def test_what_the_noise_tells_at_once_takes_one_call_and_one_to_see_it():
    made = generate(Decoder(reads=0), PROCESS, Rewrite(50), NOTHING)
    assert made.calls.tolist() == [2] * B


def test_there_are_never_more_calls_than_steps():
    for K in (1, 2, 5):
        made = generate(Decoder(), PROCESS, Rewrite(K, Choice(0)), NOTHING, trace=True)
        assert made.nfe == K
        assert made.trace is not None
        assert torch.equal(made.ids, made.trace.states[K])


def test_prompts_and_gaps_stay():
    fixed = torch.rand(B, L, generator=torch.Generator().manual_seed(1)) < 0.4
    given = torch.randint(0, V, (B, L), generator=torch.Generator().manual_seed(2))
    made = generate(Decoder(), PROCESS, Rewrite(L + 1), given, fixed, trace=True)
    assert made.trace is not None
    assert bool((made.ids == given)[fixed].all())
    before = torch.nn.functional.pad(made.ids, (1, 0))[:, :-1]
    meant = (before + made.trace.states[0] - V) % V
    assert bool((made.ids == meant)[~fixed].all())


def test_one_call_is_one_ancestral_step():
    """With equal seeds even the same texts: the step from 1 to 0 reveals everything."""
    network = Chance()
    nothing = torch.zeros(B, 2, dtype=torch.long)
    once, ancestral = (
        generate(network, PROCESS, step, nothing, generator=Streams.spawn(0, B)).ids
        for step in (Rewrite(1), Ancestral(time_grid("uniform", 1)))
    )
    assert torch.equal(once, ancestral)


class Chance:
    """p(x^1) and p(x^2 | x^1) of a joint law of two tokens; from masks, the marginals. The noise tells nothing."""

    def __init__(self) -> None:
        drawn = torch.rand(V, V, generator=torch.Generator().manual_seed(0), dtype=torch.float64) ** 3
        self.law = drawn / drawn.sum()
        first, second = self.law.sum(1), self.law.sum(0)
        after = torch.cat([self.law / first[:, None], second.expand(M, V)])
        self.table = torch.stack([first.expand(V + M, V), after], dim=1).log()

    def __call__(self, shown: Mixture, t, positions, valid, reduce):
        logits = self.table[shown.ids[:, 0, 0]][positions]
        return reduce(logits, slice(0, len(logits)))


@dataclass(frozen=True)
class Restless(Rewrite):
    """Draws by fresh numbers in every call."""

    def numbered(self, batch, k):
        return replace(batch, numbers=None)


def test_as_many_calls_as_positions_draw_the_law_from_left_to_right():
    """For the numbers are kept: the second token is drawn given the first one that stays."""
    network, nothing = Chance(), torch.zeros(20_000, 2, dtype=torch.long)
    for step, right in ((Rewrite(2), True), (Rewrite(1), False), (Restless(2), False)):
        ids = generate(network, PROCESS, step, nothing, generator=torch.Generator().manual_seed(3)).ids
        p = p_of_draws(pairs(ids, V), network.law.flatten())
        assert p > REJECT if right else p < MUTANT, (step, p)


def test_a_process_that_would_forget_its_noise_is_refused():
    for process in (MultiMask(V, M), MultiMask(V, M, tied_noise=True), Uniform(V)):
        with pytest.raises(ValueError, match="order='rewrite' is for a model that is shown its noise beside the text"):
            generate(Decoder(), process, Rewrite(3), NOTHING)
