"""Mistakes in contexts: how many, by which law, and nothing else than what is shown changes."""

import copy
import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from scipy import stats
from torch import Tensor

from multimdm.objectives import (
    Batch,
    Consistency,
    ConsistencySettings,
    Context,
    ContextSettings,
    Elbo,
    Sdtt,
    SdttSettings,
    stratified_times,
)
from multimdm.objectives.context import Mistakes
from multimdm.objectives.coupling import couple
from multimdm.process import MultiMask, Process, Schedule, Streams, Uniform, debug_checks
from support.distilling import network
from support.statistics import MUTANT, REJECT, chi_square_p, p_of_draws

V, L = 23, 7
PROCESS = MultiMask(V, 3, Schedule(rho=0.6), readout="context")
NETWORK = network(PROCESS)
LAW = torch.arange(V, dtype=torch.float64) ** 2  # token 0 never occurs
EVEN = torch.ones(V, dtype=torch.float64)
KINDS = {
    "uniform": Context(ContextSettings(by="uniform", share=0.3), EVEN),
    "marginal": Context(ContextSettings(by="marginal", share=0.3), LAW),
    "own": Context(ContextSettings(by="own", share=0.6)),
}
KIND = pytest.mark.parametrize("context", KINDS.values(), ids=KINDS)
PADDED = pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])


class Watched:
    """A network that remembers what it was shown, and whether gradients were on."""

    def __init__(self) -> None:
        self.calls: list[tuple[Tensor, Tensor, bool]] = []

    def __call__(self, x_t, t, positions, valid=None, reduce=None) -> Any:
        self.calls.append((x_t, t, torch.is_grad_enabled()))
        return NETWORK(x_t, t, positions, valid, reduce)


def batch(padded: bool = False, num: int = 17, first: int = 0) -> Batch:
    ids = torch.randint(0, V, (num, L), generator=torch.Generator().manual_seed(1))
    valid = torch.arange(L) < torch.arange(num)[:, None] % L + 1 if padded else None
    times = stratified_times(num, torch.Generator().manual_seed(2))
    return Batch(ids, valid, times, Streams.spawn(3, num, first), 50, 100)


def state(given: Batch, process: Process = PROCESS) -> Tensor:
    return process.corrupt(given.ids, given.times, given.generator)


def mistakes(context: Context, given: Batch, x_t: Tensor, net: Any = NETWORK, process: Process = PROCESS) -> Mistakes:
    found = context.mistakes(net, process, given, x_t, given.times)
    assert found is not None
    return found


# -------------------------------------------------------------------- laws


@pytest.mark.parametrize(("by", "law"), [("uniform", EVEN), ("marginal", LAW)])
def test_tokens_that_are_put_in_follow_their_law(by, law):
    given = batch(num=4000)
    x_t = state(given)
    found = mistakes(Context(ContextSettings(by=by, share=0.4, sequences=1.0), law), given, x_t)
    put_in = found.tokens[found.where]
    assert p_of_draws(put_in, law / law.sum()) > REJECT
    assert p_of_draws(put_in, torch.arange(1, V + 1) / (V * (V + 1) / 2)) < MUTANT
    here = found.where & (given.ids == 5)  # whatever the text has there
    assert p_of_draws(found.tokens[here], law / law.sum()) > REJECT


def test_a_law_on_few_tokens_gives_no_others():
    law = torch.zeros(V, dtype=torch.float64)
    law[[4, 9]] = torch.tensor([1e-12, 1e9], dtype=torch.float64)
    given = batch(num=500)
    found = mistakes(Context(ContextSettings(by="uniform", share=1.0, sequences=1.0), law), given, state(given))
    assert set(found.tokens.unique().tolist()) <= {4, 9}


@pytest.mark.parametrize("by", ["uniform", "own"])
def test_how_many_are_replaced(by):
    """Of a share of the sequences, each visible token with the same probability; not of all sequences some."""
    share, sequences, num = 0.4, 0.3, 6000
    given = replace(batch(num=num), times=torch.full((num,), 1e-9, dtype=torch.float64))  # everything is visible
    context = Context(ContextSettings(by=by, share=share, sequences=sequences), None if by == "own" else EVEN)
    found = mistakes(context, given, given.ids)
    counts = torch.bincount(found.where.sum(1), minlength=L + 1)
    number = torch.tensor(stats.binom.pmf(range(L + 1), L, share))
    none = torch.eye(L + 1, dtype=torch.float64)[0]
    assert chi_square_p(counts, sequences * number + (1 - sequences) * none) > REJECT
    mutant = torch.tensor(stats.binom.pmf(range(L + 1), L, share * sequences))
    assert chi_square_p(counts, mutant) < MUTANT


# Two positions, where everything can be counted.
PAIRS = {
    "one mask": MultiMask(3, 1, Schedule(kind="cosine")),
    "two masks": MultiMask(3, 2, Schedule(rho=0.5), readout="context"),
}


def looked_up(table: Tensor) -> Any:
    """A network on two positions whose logits [S, S, 2, V] stand in a table, and grow with the time."""

    def call(x_t, t, positions, valid, reduce) -> Tensor:
        logits = t[:, None, None] * table[x_t[:, 0], x_t[:, 1]]
        return reduce(logits[positions], slice(0, int(positions.sum())))

    return call


def law_of_own(process: Process, table: Tensor, x_0: Tensor, t: Tensor, later: Tensor, drawn_at: Tensor) -> Tensor:
    """p(x_t, shown) [S, S, S, S] by summing over x_t and the later state; the network is asked at `drawn_at`."""
    S, tokens = process.num_states, process.vocab_size
    states = torch.tensor(list(itertools.product(range(S), repeat=2)))
    of_x_t = process.marginal(x_0.expand(S * S, 2), t).gather(-1, states[..., None])[..., 0].prod(-1)
    onward = process.transition(states, t, later)  # [S^2, 2, S]
    result = torch.zeros(S, S, S, S, dtype=torch.float64)
    for x_t, p, to in zip(states, of_x_t, onward, strict=True):
        for x_later in states:
            probability = p * to[0, x_later[0]] * to[1, x_later[1]]
            if probability == 0:
                continue
            clean = (drawn_at * table[x_later[0], x_later[1]]).softmax(-1)
            clean = process.posterior_weights(clean, x_later, drawn_at)
            clean = clean / clean.sum(-1, keepdim=True)
            revealed = (x_t < tokens) & (x_later >= tokens)
            laws = [clean[i] if revealed[i] else torch.eye(S, dtype=torch.float64)[x_t[i]] for i in range(2)]
            laws = [torch.nn.functional.pad(law, (0, S - len(law))) for law in laws]
            result[x_t[0], x_t[1]] += probability * laws[0][:, None] * laws[1][None]
    return result


@pytest.mark.parametrize("name", PAIRS)
def test_own_tokens_are_drawn_in_a_step_from_a_later_time(name):
    process, num, t = PAIRS[name], 60_000, torch.tensor(0.35, dtype=torch.float64)
    S = process.num_states
    table = 2 * torch.randn(S, S, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x_0 = torch.tensor([2, 1])
    given = Batch(x_0.repeat(num, 1), None, t.repeat(num), Streams.spawn(5, num))
    context = Context(ContextSettings(by="own", share=0.45, sequences=1.0))
    x_t = state(given, process)
    shown = context.shown(looked_up(table), process, given, x_t, given.times)
    counts = torch.bincount(((x_t[:, 0] * S + x_t[:, 1]) * S + shown[:, 0]) * S + shown[:, 1], minlength=S**4)
    later = process.schedule.later(t, 0.45)
    assert chi_square_p(counts, law_of_own(process, table, x_0, t, later, later)) > REJECT
    # A network that is asked with the time of x_t, and a step of another length.
    assert chi_square_p(counts, law_of_own(process, table, x_0, t, later, t)) < MUTANT
    other = process.schedule.later(t, 0.35)
    assert chi_square_p(counts, law_of_own(process, table, x_0, t, other, later)) < MUTANT


def test_with_one_mask_the_states_are_those_of_a_sampler_after_a_step():
    """A perfect network on texts of two tokens: p(x_t') of true states, then one reverse step of all positions."""
    process, num, share = MultiMask(3, 1), 60_000, 0.7
    texts = torch.tensor([[0.3, 0.0, 0.1], [0.0, 0.2, 0.0], [0.05, 0.05, 0.3]], dtype=torch.float64)
    t = torch.tensor(0.4, dtype=torch.float64)
    later = process.schedule.later(t, share)
    states = torch.tensor(list(itertools.product(range(4), repeat=2)))
    pairs = torch.tensor(list(itertools.product(range(3), repeat=2)))
    p_later = process.marginal(pairs, later)  # [9, 2, 4]
    joint = texts.flatten()[:, None, None] * p_later[:, 0, :, None] * p_later[:, 1, None, :]  # [9, 4, 4]
    table = torch.zeros(4, 4, 2, 3, dtype=torch.float64)
    for i in range(2):
        for token in range(3):
            table[..., i, token] = joint[pairs[:, i] == token].sum(0)
    posterior = table / table.sum(-1, keepdim=True).clamp_min(1e-300)
    step = process.reverse(posterior[states[:, 0], states[:, 1]], states, t, later)  # [16, 2, 4]
    after = torch.einsum("n,na,nb->ab", joint.sum(0)[states[:, 0], states[:, 1]], step[:, 0], step[:, 1])
    assert float(after.sum()) == pytest.approx(1, abs=1e-12)

    ids = pairs[torch.multinomial(texts.flatten(), num, True, generator=torch.Generator().manual_seed(0))]
    given = Batch(ids, None, t.repeat(num), Streams.spawn(6, num))
    net = looked_up(posterior.log().clamp_min(-700.0) / later)
    context = Context(ContextSettings(by="own", share=share, sequences=1.0))
    x_t = state(given, process)
    shown = context.shown(net, process, given, x_t, given.times)
    assert p_of_draws(shown[:, 0] * 4 + shown[:, 1], after.flatten()) > REJECT
    assert p_of_draws(x_t[:, 0] * 4 + x_t[:, 1], after.flatten()) < MUTANT


@pytest.mark.parametrize("kind", ["linear", "cosine"])
@pytest.mark.parametrize("lost", [1e-3, 0.3, 1.0])
def test_the_later_time_has_so_much_less_of_the_text(kind, lost):
    schedule, t = Schedule(kind=kind), torch.tensor([1e-6, 0.2, 0.9], dtype=torch.float64)
    later = schedule.later(t, lost)
    torch.testing.assert_close(schedule.between(t, later).one_minus_alpha, torch.full_like(t, lost), rtol=1e-9, atol=0)


@pytest.mark.parametrize("kind", ["linear", "cosine"])
@pytest.mark.parametrize("latest", [1.0, 1 - 2.0**-53])
def test_at_the_end_there_is_nothing_to_replace(kind, latest):
    """Distillation comes to t = 1, from where no later time is; the network is run on states all the same."""
    process, given, net = MultiMask(V, 3, Schedule(kind=kind)), batch(), Watched()
    given = replace(given, times=torch.full((17,), latest, dtype=torch.float64))
    x_t = state(given, process)
    with debug_checks():
        found = mistakes(Context(ContextSettings(by="own", share=0.3)), given, x_t, net, process)
    assert not bool(found.where.any())
    ((x_later, later, _),) = net.calls
    assert bool(process.active(x_later).all())
    assert bool((later <= 1).all())


# -------------------------------------------------- what stays as it was


@PADDED
@KIND
def test_only_visible_tokens_of_the_text_are_replaced(context, padded):
    given = batch(padded, num=200)
    x_t = state(given)
    context = replace(context, settings=replace(context.settings, share=1.0, sequences=1.0))
    shown = context.shown(NETWORK, PROCESS, given, x_t, given.times)
    visible = ~PROCESS.active(x_t) if given.valid is None else ~PROCESS.active(x_t) & given.valid
    assert torch.equal(shown[~visible], x_t[~visible])
    assert bool((shown < V)[visible].all())
    assert float((shown != x_t)[visible].double().mean()) > 0.5


@KIND
@pytest.mark.parametrize("none", [{"share": 0.0}, {"sequences": 0.0}], ids=["no token", "no sequence"])
def test_without_mistakes_everything_is_as_it_was(context, none):
    context = replace(context, settings=replace(context.settings, **none))
    for make in (
        lambda context: Elbo(PROCESS, context=context),
        lambda context: Consistency(PROCESS, ConsistencySettings(delta=0.25, rounds=2), NETWORK, context),
        lambda context: Sdtt(PROCESS, SdttSettings(delta=0.2, rounds=2), NETWORK, context),
    ):
        with_it, without = batch(), batch()
        ours, theirs = make(context)(NETWORK, with_it).loss, make(None)(NETWORK, without).loss
        assert torch.equal(ours, theirs)
        assert with_it.generator.draws == without.generator.draws


@PADDED
@KIND
@pytest.mark.parametrize("size", [1, 3, 17])
def test_a_context_does_not_depend_on_how_the_batch_is_divided(context, padded, size):
    given = batch(padded)
    together = context.shown(NETWORK, PROCESS, given, state(given), given.times)
    calls = []
    for start in range(0, 17, size):
        rows, net = slice(start, min(start + size, 17)), Watched()
        valid = None if given.valid is None else given.valid[rows]
        part = Batch(given.ids[rows], valid, given.times[rows], Streams.spawn(3, rows.stop - start, start))
        assert torch.equal(context.shown(net, PROCESS, part, state(part), part.times), together[rows])
        calls.append(len(net.calls))
    # Ranks wait for each other: every part runs the network once, even if none of its sequences has mistakes.
    assert set(calls) == {int(context.settings.by == "own")}


@PADDED
@KIND
def test_the_elbo_asks_for_the_text_in_a_context_with_mistakes(context, padded):
    """The loss at x_t, by hand, of what the network predicts from the context that it was shown."""
    given, net = batch(padded), Watched()
    result = Elbo(PROCESS, context=context)(net, given)
    *own, (shown, t, grad) = net.calls
    assert grad
    assert [call[2] for call in own] == [False] * (context.settings.by == "own")
    again = batch(padded)
    x_t = state(again)
    assert torch.equal(shown, context.shown(NETWORK, PROCESS, again, x_t, again.times))
    assert not torch.equal(shown, x_t)
    log_probs = NETWORK(shown, t, None, given.valid).log_softmax(-1)
    terms = PROCESS.loss(log_probs, given.ids, x_t, t)
    plain = terms.reconstruction + terms.identification
    plain = plain.sum() if given.valid is None else (plain * given.valid).sum()
    torch.testing.assert_close(result.loss, plain)


# ------------------------------------------------------------ distillation


@KIND
@pytest.mark.parametrize("coupling", ["gumbel", "markov", "independent"])
def test_student_and_teacher_see_the_same_mistakes(context, coupling):
    settings = ConsistencySettings(delta=0.25, rounds=1, coupling=coupling)
    student, teacher, given = Watched(), Watched(), batch(num=60)
    objective = Consistency(PROCESS, settings, teacher, context)
    objective(student, given)
    shown_t, shown_s = student.calls[-1][0], teacher.calls[-1][0]
    again = batch(num=60)
    s = again.times * 0.75
    x_s, x_t = couple(PROCESS, again.ids, s, s + 0.25, coupling, again.generator, True)
    wrong = shown_t != x_t
    assert bool(wrong.any())
    assert not bool((wrong & PROCESS.active(x_t)).any())
    both_visible = ~PROCESS.active(x_t) & ~PROCESS.active(x_s)
    assert torch.equal(shown_s[both_visible], shown_t[both_visible])
    assert torch.equal(shown_s[~both_visible], x_s[~both_visible])
    assert bool((both_visible == ~PROCESS.active(x_t)).all()) == (coupling != "independent")


@KIND
def test_sdtt_goes_on_from_a_state_with_mistakes(context):
    student, teacher, given = Watched(), Watched(), batch(num=60)
    Sdtt(PROCESS, SdttSettings(delta=0.2, rounds=1), teacher, context)(student, given)
    shown, first = student.calls[-1][0], teacher.calls[0][0]
    assert torch.equal(shown, first)
    again = batch(num=60)
    x_t = PROCESS.corrupt(again.ids, 0.4 + 0.6 * again.times, again.generator)
    assert torch.equal(PROCESS.active(shown), PROCESS.active(x_t))
    assert bool((shown != x_t).any())
    second = teacher.calls[1][0]
    kept = ~PROCESS.active(shown)
    assert torch.equal(second[kept], shown[kept])


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Context(ContextSettings(by="own"), EVEN), "law must be given unless context.by is own.*was given"),
        (lambda: Context(ContextSettings(by="marginal")), "by is marginal, and the law is missing"),
        (lambda: Context(ContextSettings(by="uniform"), 0 * EVEN), "not all 0"),
        (lambda: Context(ContextSettings()), "context.by is none"),
        (lambda: Elbo(MultiMask(V - 1), context=KINDS["uniform"]), f"law must have {V - 1} weights.*got {V}"),
        (lambda: Elbo(Uniform(V), context=KINDS["own"]), "context is for masked processes"),
        (lambda: Sdtt(Uniform(V), SdttSettings(), None, KINDS["own"]), "context is for masked processes"),
        (
            lambda: Consistency(MultiMask(V, 3).tied(), ConsistencySettings(), None, KINDS["own"]),
            "not for noise that is tied to the text",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"by": "own", "share": 1.1}, "less than or equal to 1"),
        ({"by": "own", "share": -0.1}, "greater than or equal to 0"),
        ({"by": "own", "sequences": 2.0}, "less than or equal to 1"),
        ({"by": "noise"}, "'none', 'uniform', 'marginal' or 'own'"),
        ({"share": 0.2}, "by must be uniform, marginal or own.*got none with share 0.2"),
        ({"many": 1}, "many"),
    ],
)
def test_bad_settings(wrong, message):
    with pytest.raises(ValidationError, match=message):
        ContextSettings(**wrong)


def test_the_batch_is_left_alone():
    given = batch()
    before = copy.deepcopy((given.ids, given.times))
    x_t = state(given)
    kept = x_t.clone()
    for context in KINDS.values():
        context.shown(NETWORK, PROCESS, given, x_t, given.times)
    assert torch.equal(x_t, kept)
    assert torch.equal(given.ids, before[0])
    assert torch.equal(given.times, before[1])
