"""The NELBO: unbiased, its error honest, the exact entropy for the exact prediction."""

import math

import pytest
import torch

from multimdm.evaluation.held_out import validation_times
from multimdm.evaluation.nelbo import NelboSums, nelbo_sums
from multimdm.models import DiT, DiTConfig
from multimdm.objectives import Batch, Elbo, NextToken
from multimdm.objectives.base import rows_on
from multimdm.process import MultiMask, Schedule, Streams, Uniform
from support.quadrature import unit_interval

V, L = 6, 5


class Oracle:
    """The exact prediction for independent tokens with one law: their law itself (for masks, over the tokens alike)."""

    def __init__(self, law: torch.Tensor) -> None:
        self.logits = law.log()

    def __call__(self, x_t, t, positions, valid, reduce):
        return reduce(self.logits.expand(int(positions.sum()), -1), slice(None))


def token_law() -> torch.Tensor:
    return torch.softmax(torch.randn(V, generator=torch.Generator().manual_seed(0), dtype=torch.float64), 0)


def texts(num: int, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.multinomial(token_law(), num * L, replacement=True, generator=generator).view(num, L)


@pytest.mark.parametrize("process", [MultiMask(V, 1), Uniform(V)], ids=["mdlm", "uniform"])
def test_the_exact_prediction_gives_the_entropy(process):
    law, ids = token_law(), texts(4000)
    times = validation_times(4000, 4, seed=2)
    result = nelbo_sums(Oracle(law), process, ids, None, times, Streams.spawn(3, 4000)).estimate()
    entropy = -float((law * law.log()).sum())
    assert result.standard_error < 0.03
    assert abs(result.total - entropy) < 4 * result.standard_error
    assert (result.sequences, result.tokens) == (4000, 4000 * L)
    assert result.perplexity == pytest.approx(math.exp(result.total))


class TiedOracle:
    """The exact prediction for independent tokens along paths to a given x_1, or for x_t alone, by Bayes' rule."""

    def __init__(self, law: torch.Tensor, process: MultiMask) -> None:
        self.law, self.process = law, process

    def __call__(self, shown, t, positions, valid, reduce):
        process = self.process
        x_t = shown.ids[..., 0] if process.noise_shown else shown
        beta = process.schedule(t[:, None].expand(x_t.shape)[positions]).beta[:, None]
        home = (process.assignment + process.vocab_size == x_t[positions][:, None]).double()
        if process.noise_shown:
            at_end = (shown.ids[..., 1] - process.num_masks == x_t)[positions][:, None].double()
            likelihood = beta * home + (1 - beta) * at_end
        else:
            likelihood = beta * home + (1 - beta) / process.num_masks
        return reduce((self.law * likelihood).log(), slice(None))


@pytest.mark.parametrize("shown", [False, True])
def test_the_exact_prediction_given_the_noise_gives_the_entropy(shown):
    """Noise that is independent of the text changes nothing, so that the bound is tight."""
    process = MultiMask(V, 3, Schedule(rho=0.7)).tied(noise_shown=shown)
    law, ids = token_law(), texts(8000)
    times = validation_times(8000, 4, seed=2)
    result = nelbo_sums(TiedOracle(law, process), process, ids, None, times, Streams.spawn(3, 8000)).estimate(process)
    entropy = -float((law * law.log()).sum())
    assert result.standard_error < 0.01
    assert abs(result.total - entropy) < 4 * result.standard_error
    assert min(result.reconstruction, result.identification) > 0.05, "one term alone is the whole, and is not tested"


def _network(num_masks: int, causal: bool = False) -> DiT:
    torch.manual_seed(0)
    net = DiT(DiTConfig(V, num_masks, hidden_dim=8, num_blocks=1, num_heads=2, cond_dim=4, causal=causal))
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return net.double().eval()


@pytest.mark.parametrize("padded", [False, True])
def test_for_uniform_states_it_is_what_training_minimises(padded):
    process = Uniform(V)
    net, ids = _network(process.num_masks), torch.randint(0, V, (7, L))
    valid = torch.arange(L) < torch.tensor([5, 1, 2, 5, 4, 3, 5])[:, None] if padded else None
    times = torch.linspace(0.1, 0.9, 7, dtype=torch.float64)
    result = nelbo_sums(net, process, ids, valid, times[None], Streams.spawn(1, 7)).estimate()
    loss = Elbo(process)(net, Batch(ids, valid, times, Streams.spawn(1, 7))).loss.detach()
    tokens = 7 * L if valid is None else int(valid.sum())
    assert result.total == pytest.approx(float(loss) / tokens, rel=1e-9)
    assert result.tokens == tokens


def integral(net: DiT, process: MultiMask, ids: torch.Tensor, valid: torch.Tensor) -> float:
    """The time integral of what training minimises, for one sequence [L] of which the first few positions are valid.

    All states of these positions at 120 times, each with its probability.
    """
    n, (times, weights) = int(valid.sum()), unit_interval(120)
    choices = [torch.tensor([int(token), *range(V, process.num_states)]) for token in ids[:n]]
    states = torch.cartesian_prod(*choices).view(-1, n)
    x_t = torch.cat([states, ids[n:].expand(len(states), -1)], dim=1).repeat(len(times), 1)
    t = times.repeat_interleave(len(states))
    marginal = process.marginal(ids.expand(x_t.shape), t)
    probability = marginal.gather(-1, x_t[..., None])[:, :n, 0].prod(1)
    x_0, where = ids.expand(x_t.shape), valid.expand(x_t.shape)
    with torch.no_grad():
        rows = rows_on(process.path_to(), x_0, x_t, t, process.active(x_t) & where, where)
        losses = rows.by_sequence(net).sum(0)
    return float((weights.repeat_interleave(len(states)) * probability * losses).sum())


MASKED = {
    "M=1": MultiMask(V, 1),
    "M=2": MultiMask(V, 2),
    "M=2, rho=0.7, cosine": MultiMask(V, 2, Schedule(0.7, "cosine")),
}


@pytest.mark.parametrize("process", MASKED.values(), ids=MASKED)
def test_for_masks_it_is_the_time_integral_of_what_training_minimises(process):
    """Sequences of one, two and three tokens among padding, which may hold anything."""
    net, num = _network(process.num_masks), 3000
    for n in (1, 2, 3):
        ids, valid = texts(1, seed=n)[0], torch.arange(L) < n
        spread = validation_times(num, 1, seed=n)
        many, where = ids.expand(num, L), valid.expand(num, L)
        found = nelbo_sums(net, process, many, where, spread, Streams.spawn(n, num)).estimate()
        assert found.standard_error * n < 0.05
        assert abs(found.total * n - integral(net, process, ids, valid)) < 4 * found.standard_error * n


def test_a_sequence_without_tokens_counts_nothing():
    net, process, ids = _network(3), MultiMask(V, 3), texts(4)
    valid = torch.arange(L) < torch.tensor([3, 0, 5, 0])[:, None]
    sums = nelbo_sums(net, process, ids, valid, validation_times(4, 2, seed=0), Streams.spawn(1, 4))
    assert bool(sums.values.isfinite().all())
    assert sums.estimate().tokens == 8


class Varying:
    """A prediction that depends on how much is hidden, and is wrong by more or less."""

    def __call__(self, x_t, t, positions, valid, reduce):
        share = (x_t >= V).double().mean(1, keepdim=True)
        logits = (token_law().log() * (1.5 - share)[..., None]).expand(*x_t.shape, V)
        return reduce(logits[positions], slice(0, int(positions.sum())))


def repeated(process: MultiMask, at_random_times: bool = False) -> float:
    """The usual reported error, in units of the spread of 200 estimates with 32 texts each."""
    estimates, errors = [], []
    for seed in range(200):
        ids, spread, streams = texts(32, seed), validation_times(32, 1, seed), Streams.spawn(seed, 32)
        if at_random_times:
            x_t = process.corrupt(ids, spread[0], streams)
            rows = rows_on(process.path_to(), ids, x_t, spread[0], process.active(x_t), None)
            rec, ident = rows.by_sequence(Varying())
            sums = NelboSums.of(rec, ident, torch.full_like(rec, L))
        else:
            sums = nelbo_sums(Varying(), process, ids, None, spread, streams)
        estimates.append(sums.estimate().total)
        errors.append(sums.estimate().standard_error)
    return float(torch.tensor(errors).median() / torch.tensor(estimates).std())


REPEATED = {
    "M=1": MultiMask(V, 1),
    "M=3": MultiMask(V, 3, Schedule(0.5)),
    "tied": MultiMask(V, 3).tied(noise_shown=False),
}


@pytest.mark.parametrize("process", REPEATED.values(), ids=REPEATED)
def test_the_error_is_the_spread_of_repeated_estimates(process):
    assert 0.8 < repeated(process) < 1.25


def test_at_random_times_it_would_not_be():
    """One position at weight 1 / t has no finite variance: most estimates do not know what they miss."""
    assert repeated(MASKED["M=1"], at_random_times=True) < 0.7


def test_an_autoregressive_model_has_an_exact_value():
    net, ids = _network(1, causal=True), torch.randint(0, V, (7, L))
    zero = torch.zeros(3, 7, dtype=torch.float64)

    def network(shown, t, positions, valid, reduce):
        return net(shown, torch.zeros((), dtype=torch.float64), positions, valid, reduce)

    result = nelbo_sums(network, None, ids, None, zero, Streams.spawn(0, 7), start_symbol=V).estimate()
    loss = NextToken(V)(network, Batch(ids, None, zero[0], Streams.spawn(0, 7))).loss.detach()
    assert result.total == pytest.approx(float(loss) / (7 * L), rel=1e-9)
    with pytest.raises(ValueError, match="start_symbol must be given"):
        nelbo_sums(network, None, ids, None, zero, Streams.spawn(0, 7))


def test_parts_add_up():
    net, process, ids = _network(3), MultiMask(V, 3), torch.randint(0, V, (8, L))
    times = validation_times(8, 2, seed=0)
    whole = nelbo_sums(net, process, ids, None, times, Streams.spawn(1, 8))
    parts = NelboSums(torch.zeros(7, dtype=torch.float64))
    for start in (0, 3):
        stop = start + 3 if start == 0 else 8
        streams = Streams.spawn(1, stop - start, start)
        parts = parts + nelbo_sums(net, process, ids[start:stop], None, times[:, start:stop], streams)
    torch.testing.assert_close(whole.values, parts.values, rtol=1e-10, atol=1e-10)


def test_the_error_of_a_ratio_is_that_of_resampling():
    """Sequences of different lengths: the stated error agrees with the spread over resampled sets."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, 20, (400,), generator=generator).double()
    total = tokens * 1.5 + torch.randn(400, generator=generator, dtype=torch.float64) * tokens.sqrt()

    def sums(index: torch.Tensor) -> NelboSums:
        x, n = total[index], tokens[index]
        return NelboSums(
            torch.stack(
                [x.sum(), x.new_zeros(()), (x**2).sum(), (x * n).sum(), (n**2).sum(), n.sum(), x.new_tensor(len(x))]
            )
        )

    resampled = [sums(torch.randint(0, 400, (400,), generator=generator)).estimate().total for _ in range(2000)]
    spread = torch.tensor(resampled).std()
    assert sums(torch.arange(400)).estimate().standard_error == pytest.approx(float(spread), rel=0.08)
