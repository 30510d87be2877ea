"""Noise that is tied to the text: samplers keep x_1, and their law is the one that enumeration gives."""

from itertools import pairwise, product

import pytest
import torch
from torch import Tensor

from multimdm.process import Mixture, MultiMask, Schedule, Streams
from multimdm.samplers import Ancestral, Confidence, LeftToRight, Rewrite, generate, time_grid
from support.oracle import pairs, total_variation
from support.statistics import MUTANT, REJECT, p_of_draws

N = 40_000
V, M = 4, 2
TIED = MultiMask(V, M, Schedule(rho=0.7), tied_noise=True)
PROCESSES = {"state alone": TIED, "noise shown": TIED.tied(noise_shown=True)}
GRIDS = {"one step": (1.0, 0.0), "uniform": time_grid("uniform", 3), "given": (1.0, 0.9, 0.2, 0.0)}


def data() -> Tensor:
    """A joint law of two tokens, [V, V]."""
    drawn = torch.rand(V, V, generator=torch.Generator().manual_seed(0), dtype=torch.float64) ** 3
    return drawn / drawn.sum()


def independent() -> Tensor:
    """[V, V, M, M]: x_1 is uniform and tells nothing."""
    return data()[:, :, None, None].expand(V, V, M, M) / M**2


def informative() -> Tensor:
    """x_1 tells in which part of the data's law x_0 lies; both keep their own laws.

    The number line of x_0's law is cut into M^2 equal parts, one for each x_1.
    """
    ends = data().flatten().cumsum(0)
    starts, cuts = ends - data().flatten(), torch.linspace(0, 1, M**2 + 1, dtype=torch.float64)
    shared = torch.minimum(ends[:, None], cuts[1:]) - torch.maximum(starts[:, None], cuts[:-1])
    return shared.clamp_min(0.0).view(V, V, M, M)


LAWS = {"independent": independent, "informative": informative}


def pair_law(a: int, end: int, s: float, t: float) -> Tensor:
    """p(x_s, x_t | x_0 = a, x_1 = end), [S, S], case by case from the definition of a path."""
    at = [TIED.schedule(torch.tensor(time, dtype=torch.float64)) for time in (s, t)]
    (alpha_s, beta_s), (alpha_t, beta_t) = ((float(v.alpha), float(v.beta)) for v in at)
    m, table = V + int(TIED.assignment[a]), torch.zeros(V + M, V + M, dtype=torch.float64)
    for x_s, x_t, weight in (
        (a, a, alpha_t),
        (a, m, (alpha_s - alpha_t) * beta_t),
        (a, end, (alpha_s - alpha_t) * (1 - beta_t)),
        (m, m, (1 - alpha_s) * beta_t),
        (m, end, (1 - alpha_s) * (beta_s - beta_t)),
        (end, end, (1 - alpha_s) * (1 - beta_s)),
    ):
        table[x_s, x_t] += weight
    return table


class Oracle:
    """Predicts p(x_0^l | x_t), or p(x_0^l | x_t, x_1) if it is shown x_1, under a joint law of both, by enumeration."""

    def __init__(self, joint: Tensor, process: MultiMask = TIED) -> None:
        self.joint, self.process = joint, process

    def states(self, t: float) -> Tensor:
        """p(x_t^l | x_0^l, x_1^l), [V, M, S]."""
        rows = [[pair_law(a, V + end, 0.0, t).sum(0) for end in range(M)] for a in range(V)]
        return torch.stack([torch.stack(row) for row in rows])

    def predictions(self, t: float) -> Tensor:
        """For all pairs of states and of ends, [S, S, M, M, 2, V]."""
        own = self.states(t)
        both = [torch.einsum(f"abij,aix,bjy->xyij{place}", self.joint, own, own) for place in "ab"]
        table = torch.stack(both, dim=4)
        if not self.process.noise_shown:
            table = table.sum((2, 3), keepdim=True).expand_as(table)
        total = table.sum(-1, keepdim=True)
        return torch.where(total > 0, table / total, 1 / V)

    def __call__(self, shown, t, positions=None, valid=None, reduce=None):
        assert positions is not None
        assert reduce is not None
        if self.process.noise_shown:
            assert isinstance(shown, Mixture)
            assert bool((shown.weights == 1).all())
            x_t, end = shown.ids[..., 0], shown.ids[..., 1] - V - M
        else:
            x_t, end = shown, torch.zeros_like(shown)  # as good as any
        rows = self.predictions(float(t))[x_t[:, 0], x_t[:, 1], end[:, 0], end[:, 1]]
        return reduce(rows[positions].log(), slice(0, int(positions.sum())))


def composed_law(oracle: Oracle, times: tuple[float, ...]) -> Tensor:
    """The law of the result [V, V], over all x_1 and all states."""
    result, S = torch.zeros(V, V, dtype=torch.float64), V + M
    for ends in product(range(M), repeat=2):
        law = torch.zeros(S, S, dtype=torch.float64)
        law[V + ends[0], V + ends[1]] = 1 / M**2
        for t, s in pairwise(times):
            predicted, own = oracle.predictions(t)[:, :, ends[0], ends[1]], oracle.states(t)
            kernels = [_kernel(oracle, predicted[:, :, place], own, place, ends[place], s, t) for place in range(2)]
            law = torch.einsum("xy,xyi,xyj->ij", law, *kernels)
        result += law[:V, :V]
    assert float(result.sum()) == pytest.approx(1.0, abs=1e-9)
    return result


def _kernel(oracle: Oracle, predicted: Tensor, own: Tensor, place: int, end: int, s: float, t: float) -> Tensor:
    """p(x_s^l | x_t, x_1^l), [S, S, S]: a hypothesis is drawn, then x_s by Bayes' rule along the path."""
    S = V + M
    states = predicted if place == 0 else predicted.transpose(0, 1)  # the own state first
    if not oracle.process.noise_shown:  # by p(x_t | a, x_1) / p(x_t | a), the latter with x_1 uniform
        states = states * (own[:, end] / own.mean(1)).nan_to_num(0.0).T[:, None]
        states = states / states.sum(-1, keepdim=True).clamp_min(1e-300)
    table = torch.stack([pair_law(a, V + end, s, t) for a in range(V)])  # [V, x_s, x_t]
    given = (table / table.sum(1, keepdim=True)).nan_to_num(0.0)
    # Early draws of single positions may lead to states that no text has, and to tokens that their mask excludes: those
    # are revealed as often as others, or nothing moves.
    reveal = float(TIED.schedule.between(*torch.tensor([s, t], dtype=torch.float64)).reveal)
    for a, x_t in (table.sum(1) == 0).nonzero().tolist():
        given[a, a, x_t], given[a, x_t, x_t] = reveal, 1 - reveal
    kernel = torch.einsum("xya,asx->xys", states, given)
    kernel[:V] = torch.eye(S, dtype=torch.float64)[:V, None]
    return kernel if place == 0 else kernel.transpose(0, 1)


def draw(oracle: Oracle, step: Ancestral, process: MultiMask | None = None, seed: int = 3) -> Tensor:
    nothing = torch.zeros(N, 2, dtype=torch.long)
    generator = torch.Generator().manual_seed(seed)
    return generate(oracle, process or oracle.process, step, nothing, generator=generator).ids


@pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
@pytest.mark.parametrize("times", GRIDS.values(), ids=GRIDS)
def test_the_law_is_that_of_enumeration(law, times, process):
    oracle = Oracle(law(), process)
    ids = draw(oracle, Ancestral(times))
    assert p_of_draws(pairs(ids, V), composed_law(oracle, times).flatten()) > REJECT


def test_forgetting_the_noise_is_another_law():
    """The sampler of the same process without a tie draws fresh masks."""
    times = GRIDS["uniform"]
    oracle = Oracle(informative())
    ids = draw(oracle, Ancestral(times), MultiMask(V, M, TIED.schedule))
    assert p_of_draws(pairs(ids, V), composed_law(oracle, times).flatten()) < MUTANT


def test_the_laws_of_text_and_noise_are_kept_by_the_example():
    torch.testing.assert_close(informative().sum((2, 3)), data())
    torch.testing.assert_close(informative().sum((0, 1)), torch.full((M, M), 1 / M**2, dtype=torch.float64))


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_the_law_tends_to_that_of_the_data_if_the_network_is_shown_the_noise(law):
    """Given x_1 a path is a Markov chain, and its reversal is exact in the limit; else it is nearly so."""
    far = {}
    for name, process in PROCESSES.items():
        oracle = Oracle(law(), process)
        far[name] = [total_variation(composed_law(oracle, time_grid("uniform", K)), data()) for K in (1, 4, 16, 64)]
    assert all(later < 0.4 * earlier for earlier, later in pairwise(far["noise shown"])), far
    assert far["noise shown"][-1] < 0.5 * far["state alone"][-1], far


def test_noise_that_tells_of_the_text_makes_few_steps_better():
    for K in (1, 2, 4):
        times = time_grid("uniform", K)
        for process in PROCESSES.values():
            free, tied = (total_variation(composed_law(Oracle(law(), process), times), data()) for law in LAWS.values())
            assert tied < 0.7 * free, (K, tied, free)


class Plain:
    """Random logits for any states of any length; it remembers what it saw."""

    def __init__(self, process: MultiMask) -> None:
        generator = torch.Generator().manual_seed(1)
        self.table = torch.randn(process.num_states, process.vocab_size, generator=generator, dtype=torch.float64)
        self.seen: list[Tensor] = []

    def __call__(self, x, t, positions, valid, reduce):
        self.seen.append(x)
        logits = (self.table[x] + self.table[x].mean(1, keepdim=True))[positions]
        return reduce(logits, slice(0, len(logits)))


LONG = MultiMask(23, 5, tied_noise=True)


@pytest.mark.parametrize("step", [Ancestral(time_grid("uniform", 5)), Confidence(5), Confidence(6, block_length=3)])
def test_a_hidden_position_is_at_its_own_noise_or_at_the_mask_of_what_it_becomes(step):
    network, given = Plain(LONG), torch.zeros(50, 12, dtype=torch.long)
    fixed = torch.zeros_like(given, dtype=torch.bool)
    fixed[:, :3] = True
    made = generate(network, LONG, step, given, fixed, generator=Streams.spawn(0, 50), trace=True)
    assert made.nfe == step.num_steps
    assert made.trace is not None
    noise, final = made.trace.states[0], made.ids
    moved = 0
    for state in made.trace.states[1:]:
        hidden = state >= LONG.vocab_size
        at_home = state == LONG.designated_mask(final)
        assert bool(((state == noise) | at_home | ~hidden).all())
        moved += int((hidden & (state != noise)).sum())
    assert moved > 50


@pytest.mark.parametrize("temperature", [0, 0.3, 1.0])
def test_tokens_that_cannot_be_meant_are_not_chosen_at_any_temperature(temperature):
    """With top-k the best tokens given x_t alone may all be impossible given x_1 too."""
    from multimdm.samplers import Choice

    network, given = Plain(LONG), torch.zeros(50, 12, dtype=torch.long)
    step = Ancestral(time_grid("uniform", 6), Choice(temperature, top_p=0.5, top_k=2))
    made = generate(network, LONG, step, given, generator=Streams.spawn(0, 50), trace=True)
    assert made.trace is not None
    for state in made.trace.states[1:-1]:
        elsewhere = (state >= LONG.vocab_size) & (state != made.trace.states[0])
        assert bool((LONG.designated_mask(made.ids) == state)[elsewhere].all())


def test_a_corrector_is_refused():
    with pytest.raises(ValueError, match="corrector is not for a model whose noise is tied to the text"):
        generate(
            Plain(LONG),
            LONG,
            Ancestral(time_grid("uniform", 3), corrector=0.1),
            torch.zeros(2, 4, dtype=torch.long),
            generator=Streams.spawn(0, 2),
        )


class Noisy:
    """Random logits from states and noise as they are weighted; it adds up all positions before its own."""

    def __init__(self, process: MultiMask) -> None:
        states = process.num_states + process.num_masks
        generator = torch.Generator().manual_seed(1)
        self.table = torch.randn(states, process.vocab_size, generator=generator, dtype=torch.float64)
        self.weights: list[Tensor] = []

    def __call__(self, shown, t, positions, valid, reduce):
        self.weights.append(shown.weights)
        rows = (shown.weights[..., None] * self.table[shown.ids]).sum(2)
        logits = (rows + rows.sum(1, keepdim=True))[positions]
        return reduce(logits, slice(0, len(logits)))

    def features(self, shown, t, positions, valid):
        rows: list[Tensor] = []
        self(shown, t, positions, valid, lambda logits, _: rows.append(logits))
        return rows[0]

    def logits(self, features):
        return features


@pytest.mark.parametrize(
    "step",
    [Ancestral(time_grid("uniform", 4)), Confidence(4), LeftToRight(4), Rewrite(4)],
    ids=lambda step: type(step).__name__,
)
def test_the_noise_behind_given_tokens_changes_nothing(step):
    process = LONG.tied(noise_shown=True)
    generator = torch.Generator().manual_seed(2)
    given = torch.randint(0, process.vocab_size, (30, 12), generator=generator)
    fixed = torch.rand(30, 12, generator=generator) < 0.4
    one, other = process.prior((30, 12), generator), process.prior((30, 12), generator)
    network = Noisy(process)
    drawn = [
        generate(network, process, step, given, fixed, generator=Streams.spawn(0, 30), x_1=noise).ids
        for noise in (one, torch.where(fixed, other, one), torch.where(fixed, one, other))
    ]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])  # that of free positions does
    first = network.weights[0]
    assert bool((first[..., 0] == 1).all())
    assert torch.equal(first[..., 1], (~fixed).float())


def test_guidance_takes_the_noise_of_given_tokens_for_noise():
    """Without the prompt all is free, as in training."""
    process, network = LONG.tied(noise_shown=True), Noisy(LONG)
    fixed = torch.arange(6).expand(3, 6) < 2
    generate(network, process, Confidence(2, guidance=1.0), torch.zeros(3, 6, dtype=torch.long), fixed)
    with_prompt, without = network.weights[:2]
    assert torch.equal(with_prompt[..., 1], (~fixed).float())
    assert bool((without == 1).all())
