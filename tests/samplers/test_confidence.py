"""Confidence-ordered decoding against a plain rewriting of LLaDA's rule, and its own rules for several masks."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from multimdm.process import MultiMask, Schedule, Streams, Uniform
from multimdm.samplers import Ancestral, Choice, Confidence, generate, time_grid
from multimdm.samplers.batch import Batch
from multimdm.samplers.blocks import blocks_of, time_of_share
from multimdm.samplers.joint import advance, begin
from multimdm.samplers.left_to_right import LeftToRight
from multimdm.samplers.question import Hypotheses
from support.statistics import MUTANT, REJECT, p_of_draws

V, L = 13, 16


class Table:
    """A network of random tables; its logits at a position depend on all other states."""

    def __init__(self, num_states: int, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.own = torch.randn(num_states, L, V, generator=generator)
        self.mixed = torch.randn(num_states, L, V, generator=generator)
        self.times: list = []
        self.seen: list[torch.Tensor] = []

    def logits(self, x):
        place = torch.arange(x.shape[1])
        return 2 * self.own[x, place] + self.mixed[x, place].sum(1, keepdim=True)

    def __call__(self, x, t, positions, valid, reduce):
        self.times.append(t)
        self.seen.append(x.clone())
        packed = self.logits(x)[positions]
        return reduce(packed, slice(0, len(packed)))


def low_confidence_decoding(network: Table, prompt: torch.Tensor, length: int, steps: int, block: int) -> torch.Tensor:
    """LLaDA's sampler at temperature 0 for one sequence, written plainly: one mask, V."""
    x = torch.cat([prompt, torch.full((length,), V)])
    for start in range(len(prompt), len(x), block):
        share = steps // (length // block)
        quotas = [block // share + (i < block % share) for i in range(share)]
        for quota in quotas:
            probs = torch.softmax(network.logits(x[None])[0], -1)
            sure, tokens = probs.max(-1)
            here = (x == V) & (torch.arange(len(x)) >= start) & (torch.arange(len(x)) < start + block)
            for place in torch.where(here, sure, -1.0).topk(quota).indices.tolist():
                x[place] = tokens[place]
    return x


@pytest.mark.parametrize(("steps", "block"), [(12, 12), (6, 12), (5, 12), (6, 4), (3, 4), (12, 4), (4, 6)])
def test_one_mask_and_temperature_zero_is_low_confidence_decoding(steps, block):
    prompts = torch.randint(0, V, (3, 4), generator=torch.Generator().manual_seed(1))
    given = torch.nn.functional.pad(prompts, (0, 12))
    fixed = (torch.arange(L) < 4).expand(3, L)
    network = Table(V + 1)
    result = generate(network, MultiMask(V, 1), Confidence(steps, Choice(0), block), given, fixed)
    assert result.nfe == steps
    for row, prompt in zip(result.ids, prompts, strict=True):
        assert torch.equal(row, low_confidence_decoding(network, prompt, 12, steps, block))


def test_later_blocks_stay_at_noise_until_it_is_their_turn():
    network, process = Table(V + 3), MultiMask(V, 3)
    nothing = torch.zeros(4, L, dtype=torch.long)
    step = Confidence(8, block_length=4)
    result = generate(network, process, step, nothing, generator=Streams.spawn(0, 4), trace=True)
    assert result.trace is not None
    states = result.trace.states
    for k in range(8):
        now = k // 2
        later, sooner = states[k + 1][:, 4 * (now + 1) :], states[k + 1][:, : 4 * now]
        assert torch.equal(later, states[0][:, 4 * (now + 1) :])
        assert torch.equal(sooner, result.ids[:, : 4 * now])
        assert bool((network.times[k] == (1.0 if k % 2 == 0 else 0.5)).all())  # the block's masked share
    assert bool((states[1][:, :4] >= V).sum(1).eq(2).all())


def test_masks_that_stay_move_by_the_reverse_kernel_given_that_they_stay():
    process, n = MultiMask(5, 3, Schedule(rho=0.5)), 40_000
    s, t, clean = 0.3, 0.8, torch.full((n,), 2)
    exact_s, exact_t = (torch.tensor(time, dtype=torch.float64) for time in (s, t))
    for state in (5, 6, 7):
        u = torch.rand(n, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        draws = process.remain(clean, torch.full((n,), state), s, t, u)
        law = process.posterior(torch.tensor(2), torch.tensor(state), exact_s, exact_t)
        law[:5] = 0
        assert p_of_draws(draws, law / law.sum()) > REJECT
        assert p_of_draws(torch.full((n,), state), law / law.sum()) < MUTANT


def test_a_threshold_saves_calls_and_leaves_no_mask():
    process = MultiMask(V, 2)
    nothing = torch.zeros(4, L, dtype=torch.long)
    given = {"given": nothing, "trace": True}
    patient, quick, all_at_once = (
        generate(Table(V + 2), process, Confidence(L, Choice(0), 8, threshold), generator=Streams.spawn(0, 4), **given)
        for threshold in (None, 0.6, 1e-9)
    )
    assert patient.calls.tolist() == [L] * 4
    assert all_at_once.calls.tolist() == [2] * 4  # one per block
    assert 2 < quick.nfe < L
    assert len(set(quick.calls.tolist())) > 1  # every sequence at its own pace
    for result in (patient, quick, all_at_once):
        assert int(result.ids.max()) < V


@pytest.mark.parametrize("kind", [partial(Confidence, choice=Choice(0)), partial(LeftToRight, choice=Choice(0))])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_a_threshold_by_steps_asks_more_of_a_position_the_more_calls_there_are(kind, steps):
    """It is K / (K + 1), by itself and where sequences of different K share a call."""
    process, network = MultiMask(V, 2), Table(V + 2)
    given, free = torch.zeros(2, L, dtype=torch.long), torch.ones(2, L, dtype=torch.bool)
    by_steps, fixed = (kind(steps, threshold=one) for one in ("by_steps", steps / (steps + 1)))
    alone = [generate(network, process, step, given, generator=Streams.spawn(0, 2)) for step in (by_steps, fixed)]
    assert torch.equal(alone[0].ids, alone[1].ids)
    assert alone[0].calls.tolist() == alone[1].calls.tolist()
    other = kind(L, threshold="by_steps")
    drafts = [*begin(process, given, free, by_steps, 0), *begin(process, given, free, other, 0)]
    for _ in range(steps):
        drafts = [one.draft for one in advance(network, process, drafts)]
    assert torch.equal(torch.stack([draft.x for draft in drafts[:2]]), alone[0].ids)


def test_a_step_by_steps_reveals_what_is_sure_enough():
    step, process = Confidence(4, Choice(0), threshold="by_steps"), MultiMask(3)
    sure = torch.tensor([[0.81, 0.79, 0.8, 0.2], [0.1, 0.3, 0.2, 0.4]], dtype=torch.float64)
    batch = Batch(torch.full((2, 4), 3), torch.ones(2, 4, dtype=torch.bool), generator=Streams([0, 1]))
    hypotheses = Hypotheses(torch.zeros(2, 4, dtype=torch.long), sure)
    for k in (0, torch.tensor([0, 0])):
        moved = step.move(step.question(process, batch, k), hypotheses, k)
        assert (moved.x == 0).tolist() == [[True, False, True, False], [False, False, False, True]]
    fewer = replace(step, num_steps=3)
    moved = fewer.move(fewer.question(process, batch, 0), hypotheses, 0)
    assert (moved.x == 0).tolist() == [[True, True, True, False], [False, True, False, True]]


@pytest.mark.parametrize("steps", range(3, 10))
def test_any_number_of_steps_from_one_per_block(steps):
    """Blocks need not divide the length, nor the blocks the steps."""
    nothing = torch.zeros(2, L, dtype=torch.long)
    result = generate(Table(V + 2), MultiMask(V, 2), Confidence(steps, block_length=7), nothing)
    assert int(result.ids.max()) < V
    assert result.nfe <= steps  # the last block is short: it may need fewer than its share


def test_blocks_begin_where_something_is_to_be_made():
    free = torch.tensor([[False, False, True, True, True], [True, False, False, True, False], [False] * 5])
    blocks = blocks_of(free, 2)
    assert blocks.index.tolist() == [[-1, -1, 0, 0, 1], [0, 0, 1, 1, 2], [-1] * 5]
    assert blocks.number.tolist() == [2, 2, 0]


def test_the_time_of_a_share_is_when_the_process_masks_it():
    share = torch.tensor([0.0, 1e-9, 0.1, 0.5, 0.9, 1.0], dtype=torch.float64)
    for kind in ("linear", "cosine"):
        schedule = Schedule(kind=kind)
        torch.testing.assert_close(schedule(time_of_share(schedule, share)).one_minus_alpha, share)


def test_bad_input():
    nothing = torch.zeros(2, L, dtype=torch.long)
    network = Table(V + 2)
    with pytest.raises(ValueError, match="steps must be at least the number of blocks, 4; got 3: take longer blocks"):
        generate(network, MultiMask(V, 2), Confidence(3, block_length=4), nothing)
    with pytest.raises(ValueError, match="process must have masks for order='confidence'; got Uniform"):
        generate(network, Uniform(V), Confidence(3), nothing)
    assert not network.times
    assert generate(network, MultiMask(V, 2), Ancestral(time_grid("uniform", 2)), nothing).nfe == 2
