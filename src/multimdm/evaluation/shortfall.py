"""Where a network loses: how far its predictions are from the exact ones, by time.

At every hidden position l, with f the exact posterior and f_theta the network's,

    KL(f || f_theta) = Σ_a f(a | x_t) log(f(a | x_t) / f_theta(a | x_t)),   in nats per hidden token,

on two kinds of states. Those of the data are texts that the forward process has noised: what training shows. Those
that the sampler visits hold its own mistakes, and no text need have led there. A network that is good on the first and
bad on the second has not learnt to live with itself. For uniform states, whose every position is hidden, both
posteriors are taken, the evidence of x_t^l included: hypotheses are drawn from them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from multimdm._checks import require
from multimdm.evaluation.bootstrap import Bootstrap, Estimate
from multimdm.evaluation.held_out import Part, over_parts
from multimdm.evaluation.perfect_network import PerfectNetwork
from multimdm.evaluation.progress import Progress, ignore
from multimdm.evaluation.real_text import RealText
from multimdm.evaluation.settings import Drawing
from multimdm.evaluation.tales_models import speaks_tales, tales_for
from multimdm.objectives.base import Network, both
from multimdm.pipeline import Model
from multimdm.pipeline.generation import evaluating, length_of
from multimdm.pipeline.ranks import shared
from multimdm.process import Process, Streams, Time
from multimdm.process.places import exact, home_of, widened
from multimdm.samplers.loop import generate
from multimdm.samplers.steps import step_of

_BINS = 8
"""Parts of [0, 1] that times of the data are put into."""


@dataclass(frozen=True)
class AtTime:
    """The shortfall on states at about one time."""

    time: float
    """The mean time of the states."""
    nats: Estimate
    """Nats per hidden token, with an interval over sequences."""


@dataclass(frozen=True)
class Shortfall:
    """KL(perfect || network) on one kind of states."""

    states: Literal["data", "sampler"]
    steps: int | None
    """K of the sampler."""
    temperature: float | None
    sequences: int
    nats: Estimate
    """Nats per hidden token, of all times together."""
    by_time: tuple[AtTime, ...]
    """The shortfall by time, from the noise to the data; for a sampler, at each network call."""


def falls_short(model: Model) -> bool:
    """Whether there is a perfect network to compare with: for masks and uniform states of Tales, if x_1 is free.

    Noise that is tied to texts follows no law that could be written down.
    """
    process = model.process
    return isinstance(process, Process) and not process.tied_noise and speaks_tales(model)


def shortfall_on_data(
    model: Model,
    text: RealText,
    sequences: int = 512,
    seed: int = 0,
    batch_size: int = 64,
    progress: Progress = ignore,
) -> Shortfall:
    """The shortfall on held-out texts, each noised once, at times as for the NELBO."""
    process, perfect = _opponents(model)

    def of(part: Part) -> tuple[Tensor, Tensor]:
        t = part.times[0].to(part.ids.device)
        x_t = process.corrupt(part.ids, t, part.streams(seed))
        watched = Watched(model.network, perfect, process)
        watched(x_t, t, both(process.active(x_t), part.valid), part.valid, _nothing)
        progress(len(part.ids))
        return watched.calls[0], t.cpu()

    with torch.no_grad():
        found = over_parts(model, text, sequences, 1, seed, batch_size, of)
    sums, t = torch.cat([sums for sums, _ in found], dim=1), torch.cat([t for _, t in found])
    bins = (t * _BINS).long().clamp_max(_BINS - 1)
    rows = [bins == number for number in reversed(range(_BINS))]
    return Shortfall("data", None, None, len(t), _per_token(sums), _by_time([(t[row], sums[:, row]) for row in rows]))


def shortfall_of_sampler(
    model: Model, steps: int, temperature: float | int, drawing: Drawing, progress: Progress = ignore
) -> Shortfall:
    """The shortfall on the states in which the network is asked while it makes the samples of a measurement."""
    process, perfect = _opponents(model)
    sampling = drawing.sampling(steps, temperature)
    require(sampling.guidance == 0, f"guidance must be 0 where predictions are compared; got {sampling.guidance}")
    step, L = step_of(process, sampling), length_of(model, drawing.length)
    device = home_of(next(model.network.parameters()).device)

    def of(first: int) -> list[tuple[Tensor, Tensor]]:
        num = min(drawing.batch_size, drawing.num - first)
        watched = Watched(model.network, perfect, process)
        given = torch.zeros((num, L), dtype=torch.long, device=device)
        generate(watched, process, step, given, generator=Streams.spawn(drawing.seed, num, first))
        progress(num * steps)
        return list(zip(watched.times, watched.calls, strict=True))

    with evaluating(model.network):
        found = shared(range(0, drawing.num, drawing.batch_size), of)
    by_call = [[calls[k] for calls in found if k < len(calls)] for k in range(step.num_steps)]
    each = [(torch.cat([t for t, _ in call]), torch.cat([s for _, s in call], dim=1)) for call in by_call if call]
    nats = _of_all_calls([sums for _, sums in each])
    return Shortfall("sampler", steps, float(temperature), drawing.num, nats, _by_time(each))


class Watched:
    """A network that is compared with the perfect one wherever it is asked."""

    def __init__(self, network: Network, perfect: PerfectNetwork, process: Process) -> None:
        self._network, self._perfect, self._process = network, perfect, process
        self.calls: list[Float64[Tensor, "2 B"]] = []
        """The sum of KL over the positions that a call asked for, and their number, by sequence."""
        self.times: list[Float64[Tensor, " B"]] = []

    def __call__(
        self,
        x_t: Int64[Tensor, "B L"],
        t: Time,
        positions: Tensor,
        valid: Tensor | None = None,
        reduce: Callable[[Tensor, slice], Any] | None = None,
    ) -> Any:
        """What the network says; the difference is noted."""
        perfect = self._perfect(x_t, t, positions, valid)
        state, time = x_t[positions], torch.as_tensor(t, dtype=torch.float64, device=x_t.device)
        each = time.reshape(-1, 1).expand(x_t.shape)[positions]
        parts: list[Tensor] = []

        def compared(logits: Tensor, rows: slice) -> Any:
            posteriors = (
                exact(self._process.posterior_logits(widened(one), state[rows], each[rows])).log_softmax(-1)
                for one in (perfect[rows].to(home_of(logits.device)), logits)
            )
            parts.append(divergence(*posteriors))
            assert reduce is not None
            return reduce(logits, rows)

        answer = self._network(x_t, t, positions=positions, valid=valid, reduce=compared)
        sequence = positions.nonzero()[:, 0]
        nats = torch.zeros(len(x_t), dtype=torch.float64, device=x_t.device).index_add(0, sequence, torch.cat(parts))
        self.calls.append(torch.stack([nats, positions.sum(1).double()]).cpu())
        self.times.append(time.expand(len(x_t)).cpu())
        return answer


def divergence(log_p: Float[Tensor, "N V"], log_q: Float[Tensor, "N V"]) -> Float[Tensor, " N"]:
    """KL(p || q) = Σ p (log p - log q), where 0 log 0 = 0."""
    return torch.where(log_p > -torch.inf, log_p.exp() * (log_p - log_q), 0.0).sum(-1)


def _opponents(model: Model) -> tuple[Process, PerfectNetwork]:
    """The process, and the perfect network for it."""
    process = model.process
    if not (isinstance(process, Process) and falls_short(model)):
        raise ValueError(
            "the perfect network can be compared with models of Tales alone, with masks or uniform states and without "
            f"noise that is tied to the text; this one has {process!r}"
        )
    return process, PerfectNetwork(tales_for(model), process)


def _nothing(logits: Tensor, rows: slice) -> Tensor:
    """Keep nothing: the network is called for the comparison alone."""
    return logits.new_zeros(len(logits))


def _by_time(each: Sequence[tuple[Tensor, Tensor]]) -> tuple[AtTime, ...]:
    """The shortfall at each of several times, from times [n] and sums [2, n]; left out where nothing was hidden."""
    return tuple(AtTime(float(t.mean()), _per_token(sums)) for t, sums in each if bool(sums[1].any()))


def _of_all_calls(each: Sequence[Float64[Tensor, "2 _"]]) -> Estimate:
    """All calls together, with an interval over sequences.

    There is no interval if some sequences were finished early: it is not known then which calls are whose.
    """
    if len({sums.shape for sums in each}) == 1:
        return _per_token(torch.stack(list(each)).sum(0))
    nats, hidden = torch.cat(list(each), dim=1).sum(1).tolist()
    return Estimate(nats / hidden)


def _per_token(sums: Float64[Tensor, "2 n"]) -> Estimate:
    """All nats by all hidden tokens."""
    nats, hidden = sums
    return Bootstrap(len(nats)).ratio(nats, hidden)
