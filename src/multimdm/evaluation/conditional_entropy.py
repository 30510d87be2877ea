"""How uncertain the clean token is along coupled paths: Fig. (conditional_entropy), App. (conditional_entropy).

One token with a Zipf law. For a coupling F_t(x_0, omega), the posterior given the state x_t and the noise omega puts
on each candidate j its prior mass if F_t(j, omega) = x_t and none otherwise; the curve is the mean of its entropy. The
couplings' curves are estimated by drawing (x_0, omega); the curves without omega are exact sums.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from multimdm.process import MultiMask, Process, Schedule, Uniform, categorical
from multimdm.process.draws import exponential, uniform

_CHUNK = 2000

CandidateStates = Callable[[float], Tensor]
"""t -> [n, V]: the state F_t(j, omega) for each draw of the noise and each candidate j."""


@dataclass(frozen=True)
class Study:
    """The setting of the figure."""

    vocab_size: int = 100
    exponent: float = 1.2
    """Zipf: p_0(x) is proportional to x ** -exponent, x = 1 .. V."""
    rho: float = 0.5
    steps: int = 24
    """Times 0, 1/steps, ..., 1."""
    masks: Sequence[int] = (1, 2, 5, 10, 20)
    samples: int = 100_000
    seed: int = 0

    @property
    def times(self) -> list[float]:
        """The times of the grid, from 0 to 1."""
        return [k / self.steps for k in range(self.steps + 1)]

    @property
    def prior(self) -> Float64[Tensor, " V"]:
        """The Zipf law; the token x is the id x - 1."""
        weights = torch.arange(1, self.vocab_size + 1, dtype=torch.float64) ** -self.exponent
        return weights / weights.sum()

    def multimask(self, num_masks: int) -> MultiMask:
        """The process with m_x = x mod M for x = 1 .. V."""
        assignment = torch.arange(1, self.vocab_size + 1) % num_masks
        return MultiMask(self.vocab_size, num_masks, Schedule(rho=self.rho), assignment)


@dataclass(frozen=True)
class Point:
    """One point of one curve; exact values have a standard error of zero."""

    time: float
    curve: str
    value: float
    standard_error: float


def entropy(probs: Float64[Tensor, "*rows V"]) -> Float64[Tensor, "*rows"]:
    """-sum p log p, in nats, with 0 log 0 = 0."""
    return torch.special.entr(probs).sum(-1)


def unconditioned_entropy(process: Process, prior: Float64[Tensor, " V"], t: float) -> float:
    """H(x_0 | x_t), exactly: H(x_0) + H(x_t | x_0) - H(x_t)."""
    tokens = torch.arange(process.vocab_size)
    kernel = process.marginal(tokens, torch.tensor(t, dtype=torch.float64))
    return float(entropy(prior) + prior @ entropy(kernel) - entropy(prior @ kernel))


def coupled_entropy(
    states: CandidateStates, x_0: Tensor, prior: Float64[Tensor, " V"], t: float
) -> Float64[Tensor, " n"]:
    """H(x_0 | x_t, omega) of each draw: the entropy of the prior among the candidates that lead to the same state."""
    candidates = states(t)
    agree: Bool[Tensor, "n V"] = candidates == candidates.gather(1, x_0[:, None])
    # With w_j = p_j 1{agree} and W their sum, the entropy of w / W is log W - (sum w_j log p_j) / W.
    mass, mass_log = (agree.double() @ torch.stack([prior, prior * prior.log()], dim=1)).unbind(-1)
    return (mass.log() - mass_log / mass).clamp_min(0.0)


def run(study: Study, progress: Callable[[int], None] = lambda samples: None) -> Iterator[Point]:
    """All curves of the figure. `progress` is called after every chunk of samples."""
    prior = study.prior
    yield from _exact_curves(study, prior)
    sums: dict[tuple[str, float], Tensor] = {}
    generator = torch.Generator().manual_seed(study.seed)
    done = 0
    while done < study.samples:
        n = min(_CHUNK, study.samples - done)
        x_0 = categorical(prior.expand(n, -1), generator)
        for curve, states in _couplings(study, n, generator):
            for t in study.times:
                h = coupled_entropy(states, x_0, prior, t)
                sums[curve, t] = sums.get((curve, t), 0) + torch.stack([h.sum(), h.square().sum()])
        done += n
        progress(n)
    for (curve, t), (total, squares) in sums.items():
        mean = float(total) / study.samples
        variance = max(0.0, float(squares) / study.samples - mean**2)
        yield Point(t, curve, mean, (variance / study.samples) ** 0.5)


def _exact_curves(study: Study, prior: Tensor) -> Iterator[Point]:
    unmasked = float(entropy(prior))
    for t in study.times:
        yield Point(t, "uniform unconditioned", unconditioned_entropy(Uniform(study.vocab_size), prior, t), 0.0)
        # As the paper words it: the entropy once the token is seen to be masked, by masks that tell nothing.
        yield Point(t, "masked unconditioned, once masked", unmasked, 0.0)
        yield Point(t, "masked unconditioned, on average", t * unmasked, 0.0)
        for M in study.masks:
            value = unconditioned_entropy(study.multimask(M), prior, t)
            yield Point(t, f"multimask M={M} unconditioned", value, 0.0)


def _couplings(study: Study, n: int, generator: torch.Generator) -> Iterator[tuple[str, CandidateStates]]:
    """Each coupling with fresh noise for n draws, shared by all candidates and all times."""
    V = study.vocab_size
    candidates = torch.arange(V).expand(n, V)
    process = Uniform(V)

    gumbel = process.noise_of(exponential((n, V), generator), candidates)
    yield "uniform gumbel", lambda t: process.path(candidates, gumbel, t)

    gaussians = torch.special.ndtri(uniform((n, V), generator))
    gaussian = process.gaussian_noise_of(gaussians, candidates)
    yield "uniform gaussian", lambda t: process.path(candidates, gaussian, t)

    for M in study.masks:
        masked = study.multimask(M)
        noise = masked.noise_of(exponential((n, V + M), generator), candidates)
        yield f"multimask M={M} gumbel", lambda t, p=masked, noise=noise: p.path(candidates, noise, t)
