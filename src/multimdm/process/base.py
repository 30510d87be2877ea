"""What the discrete processes share: times per position, paths at many times, scores from marginals.

Shapes: x_0, x_s, x_t, x_1 and `clean` are ids [*shape]; logits and probabilities of clean tokens [*shape, V]; kernels
[*shape, V + M]. Objectives, samplers and evaluation ask a `Path`, which knows whether x_1 is kept.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor

from multimdm.process import fused_readout, readout
from multimdm.process.assignment import Groups
from multimdm.process.checks import (
    check_ids,
    check_normalised,
    check_same_shape,
    check_table,
    check_weights,
    checks_contents,
    kind_of,
)
from multimdm.process.draws import Generator
from multimdm.process.places import fuses, widened
from multimdm.process.schedule import (
    BetweenValues,
    Retention,
    Schedule,
    ScheduleValues,
    Time,
    check_order,
    check_time,
    per_position,
    stack_times,
    time_dtype,
)
from multimdm.process.settings import Readout
from multimdm.process.values import LossTerms, Mixture

Ids = Int[Tensor, "*shape"]
NoiseKind = Literal["gumbel", "gaussian"]
"""What is shared along a coupled path."""


@runtime_checkable
class RowReader(Protocol):
    """What losses need of rows over the vocabulary: `readout` of log-probabilities, `fused_readout` of logits."""

    def picked(self, table: Tensor, x_0: Tensor, /) -> Tensor:
        """log p(x_0)."""
        ...

    def group_masses(self, table: Tensor, x_0: Tensor, groups: Groups, /) -> tuple[Tensor, Tensor]:
        """log p(x_0), and the group sums."""
        ...

    def log1p_sum(self, table: Tensor, x_0: Tensor, x_t: Tensor, odds: Tensor, /) -> tuple[Tensor, Tensor, Tensor]:
        """log p(x_0), log p(x_t), and a sum of logarithms."""
        ...


class Process(ABC):
    """A forward process on a finite set of states, position by position, and its exact reversal."""

    vocab_size: int
    """V: clean tokens are the ids 0 .. V-1."""
    num_masks: int
    """M: masks are the ids V .. V+M-1."""
    schedule: Schedule
    tied_noise: bool = False
    """Whether x_1 was tied to the text in training, so that it has to be kept (`tied.py`)."""
    noise_shown: bool = False
    """Whether the network is shown x_1 beside x_t."""
    readout: Readout = "posterior"
    """Whether predictions are posteriors, or are made from the context, so that the evidence of x_t joins them."""

    @property
    def num_states(self) -> int:
        """V + M."""
        return self.vocab_size + self.num_masks

    @abstractmethod
    def prior(
        self, shape: Sequence[int], generator: Generator = None, device: torch.device | str | None = None
    ) -> Int64[Tensor, "..."]:
        """A draw of x_1."""

    @abstractmethod
    def active(self, x_t: Ids) -> Bool[Tensor, "*shape"]:
        """The positions that the network must predict."""

    @abstractmethod
    def marginal(self, x_0: Ids, t: Time) -> Float[Tensor, "*shape states"]:
        """p_t(. | x_0)."""

    @abstractmethod
    def transition(self, x_s: Ids, s: Time, t: Time) -> Float[Tensor, "*shape states"]:
        """p_{t|s}(. | x_s)."""

    @abstractmethod
    def posterior(self, x_0: Ids, x_t: Ids, s: Time, t: Time) -> Float[Tensor, "*shape states"]:
        """p_{s|t}(. | x_t, x_0)."""

    @abstractmethod
    def reverse(
        self, clean_probs: Float[Tensor, "*shape V"], x_t: Ids, s: Time, t: Time
    ) -> Float[Tensor, "*shape states"]:
        """p_{s|t}(. | x_t) under a prediction of the clean tokens, as the network gives it."""

    @abstractmethod
    def rates(self, t: Time) -> Float[Tensor, "*times states states"]:
        """The generator R_t[destination, source]."""

    @abstractmethod
    def corrupt(self, x_0: Ids, t: Time, generator: Generator = None) -> Int64[Tensor, "*shape"]:
        """A draw of x_t given x_0."""

    @abstractmethod
    def transition_sample(self, x_s: Ids, s: Time, t: Time, generator: Generator = None) -> Int64[Tensor, "*shape"]:
        """A draw of x_t given x_s."""

    @abstractmethod
    def posterior_weights(self, weights: Float[Tensor, "*shape V"], x_t: Ids, t: Time) -> Float[Tensor, "*shape V"]:
        """p(x_0 | x_t), up to a factor, from the network's (unnormalised) prediction: draw hypotheses from it."""

    @abstractmethod
    def posterior_logits(self, logits: Float[Tensor, "*shape V"], x_t: Ids, t: Time) -> Float[Tensor, "*shape V"]:
        """log p(x_0 | x_t), up to a number, from the network's logits; it can be differentiated."""

    @abstractmethod
    def reverse_sample(
        self, clean: Ids, x_t: Ids, s: Time, t: Time, generator: Generator = None
    ) -> Int64[Tensor, "*shape"]:
        """A draw of x_s given x_t and hypotheses of the clean tokens that were drawn from the posterior."""

    def loss(self, log_probs: Float[Tensor, "*shape V"], x_0: Ids, x_t: Ids, t: Time) -> LossTerms:
        """The loss density at time t, per position, for normalised predictions."""
        self._check_loss(log_probs, x_0, x_t, t)
        if checks_contents():
            check_normalised("log_probs", log_probs.detach().exp().sum(-1))
        return self._loss(readout, log_probs, x_0, x_t, t)

    def logit_loss(self, logits: Float[Tensor, "*shape V"], x_0: Ids, x_t: Ids, t: Time) -> LossTerms:
        """The loss density at time t for softmax(logits), in float32 or better; on a GPU without a table of log p."""
        if not fuses(logits):
            return self.loss(widened(logits).log_softmax(-1), x_0, x_t, t)
        self._check_loss(logits, x_0, x_t, t)
        return self._loss(fused_readout, logits, x_0, x_t, t)

    @abstractmethod
    def _loss(self, read: RowReader, table: Tensor, x_0: Tensor, x_t: Tensor, t: Time) -> LossTerms:
        """The loss density, of rows that `read` knows how to read."""

    @abstractmethod
    def noise(
        self,
        shape: Sequence[int],
        generator: Generator = None,
        device: torch.device | str | None = None,
        noise: NoiseKind = "gumbel",
    ) -> Any:
        """The randomness of coupled paths, as `path` takes it."""

    @abstractmethod
    def _check_noise(self, noise: Any) -> None:
        """Noise of a kind that `path` understands."""

    @abstractmethod
    def _path(self, x_0: Tensor, noise: Any, values: ScheduleValues) -> Int64[Tensor, "..."]:
        """The state of a coupled path where the schedule has these values; everything broadcasts."""

    def path(self, x_0: Ids, noise: Any, t: Time) -> Int64[Tensor, "*shape"]:
        """The state at t of the coupled path with this noise (`noise(shape)` draws it)."""
        check_ids("x_0", x_0, self.vocab_size)
        self._check_noise(noise)
        check_same_shape("x_0", x_0, "noise", noise.clean)
        return self._path(x_0, noise, self._at("t", t, x_0))

    def couple(
        self,
        x_0: Ids,
        times: Sequence[float | int] | Float[Tensor, "..."],
        generator: Generator = None,
        noise: NoiseKind = "gumbel",
    ) -> Int64[Tensor, "T *shape"]:
        """States [T, *x_0.shape] of one coupled path per position, at times [T] or [T, B]."""
        check_ids("x_0", x_0, self.vocab_size)
        values = self.schedule(stack_times(times, x_0))
        return self._path(x_0, self.noise(x_0.shape, generator, x_0.device, noise), values)

    def conditional_scores(self, x_0: Ids, x_t: Ids, t: Time) -> Float[Tensor, "*shape states"]:
        """p_t(. | x_0) / p_t(x_t | x_0), wherever x_t can occur. Eqs. (exact_clean_score, exact_mask_score)."""
        self._check_pair(x_0, x_t)
        certain = torch.nn.functional.one_hot(x_0.long(), self.vocab_size)
        return self.model_scores(certain.to(time_dtype(t)), x_t, t)

    @abstractmethod
    def model_scores(self, clean_probs: Float[Tensor, "*shape V"], x_t: Ids, t: Time) -> Float[Tensor, "*shape states"]:
        """The conditional scores averaged over the posterior that the prediction means. Prop. (model_scores)."""

    # ------------------------------------------------------- paths to kept noise

    def path_to(self, x_1: Ids | None = None) -> "Path":
        """Paths from x_0 to this x_1 if the process keeps it, else to any noise: x_1 is then not looked at."""
        return Path(self, None)

    def path_to_prior(
        self, shape: Sequence[int], generator: Generator = None, device: torch.device | str | None = None
    ) -> "Path":
        """Paths from x_0 to a draw of x_1; nothing is drawn by a process that does not keep it."""
        return self.path_to(self.prior(shape, generator, device) if self.tied_noise else None)

    def remain(self, clean: Ids, x_t: Ids, s: Time, t: Time, u: Float[Tensor, "*shape"]) -> Int64[Tensor, "*shape"]:
        """x_s of positions that stay hidden, by one number each: for masks, which alone hide a token."""
        raise ValueError(f"process must have masks for positions to stay hidden; got {kind_of(self)}")

    def masks_of(self, x_0: Ids, t: Time, generator: Generator = None) -> Int64[Tensor, "*shape"]:
        """x_t, given that every position is hidden: for masks, which alone hide a token."""
        raise ValueError(f"process must have masks for positions to be hidden; got {kind_of(self)}")

    # ----------------------------------------------------------------- helpers

    def _at(self, name: str, t: Time, x: Tensor) -> ScheduleValues:
        """The schedule at t, which is checked, in float64, broadcasting against x."""
        check_time(name, t)
        return self.schedule(per_position(name, t, x))

    def _between(self, s: Time, t: Time, x: Tensor) -> BetweenValues:
        """The schedule between s and t, which are checked, in float64, broadcasting against x."""
        check_order(s, t)
        return self.schedule.between(per_position("s", s, x), per_position("t", t, x))

    def _bridge_retentions(
        self, s: Time, t: Time, x: Tensor, between: BetweenValues
    ) -> tuple[Retention, Retention, Retention]:
        """What the refreshing chain keeps until s, until t, and between them."""
        at_s = self._at("s", s, x)
        at_t = self._at("t", t, x)
        return self._retention(at_s), self._retention(at_t), self._retention(between)

    @staticmethod
    @abstractmethod
    def _retention(values: ScheduleValues | BetweenValues) -> Retention:
        """alpha or beta: which of them the chain of this process refreshes by."""

    def _check_pair(self, x_0: Tensor, x_t: Tensor) -> None:
        check_ids("x_0", x_0, self.vocab_size)
        check_ids("x_t", x_t, self.num_states)
        check_same_shape("x_0", x_0, "x_t", x_t)

    def _check_prediction(self, name: str, probs: Tensor, x_t: Tensor) -> None:
        check_ids("x_t", x_t, self.num_states)
        check_table(name, probs, x_t, self.vocab_size)
        check_weights(name, probs)

    def _check_loss(self, log_probs: Tensor, x_0: Tensor, x_t: Tensor, t: Time) -> None:
        self._check_pair(x_0, x_t)
        check_table("log_probs", log_probs, x_0, self.vocab_size)


@dataclass(frozen=True)
class Path:
    """The paths of a process from x_0 to x_1: all that objectives, samplers and evaluation need of noise.

    This one forgets x_1, and is the process itself under the names that a kept x_1 shares (`tied.TiedPath`).
    """

    process: Process
    x_1: Int64[Tensor, "*shape"] | None
    """The noise that is kept; None where it is forgotten."""

    def at(self, where: Any) -> "Path":
        """The paths of some sequences, or of packed positions, as an index into [*shape] names them."""
        return self

    def corrupt(self, x_0: Ids, t: Time, generator: Generator = None) -> Int64[Tensor, "*shape"]:
        """A draw of x_t given x_0 and x_1."""
        return self.process.corrupt(x_0, t, generator)

    def masks_of(self, x_0: Ids, t: Time, generator: Generator = None) -> Int64[Tensor, "*shape"]:
        """A draw of x_t given x_0 and x_1, given also that every position is hidden."""
        return self.process.masks_of(x_0, t, generator)

    def shown(self, x_t: Ids, given: Bool[Tensor, "*shape"] | None = None) -> Tensor | Mixture:
        """What networks are shown of a state in which some tokens are given."""
        return x_t

    def condition(self, logits: Float[Tensor, "*shape V"], x_t: Ids, t: Time) -> Float[Tensor, "*shape V"]:
        """The network's prediction, conditioned on x_1 as well; temperatures act on what this gives."""
        return logits

    def posterior_logits(self, logits: Float[Tensor, "*shape V"], x_t: Ids, t: Time) -> Float[Tensor, "*shape V"]:
        """log p(x_0 | x_t, x_1), up to a number, from the network's logits."""
        return self.process.posterior_logits(self.condition(logits, x_t, t), x_t, t)

    def reverse_sample(
        self, clean: Ids, x_t: Ids, s: Time, t: Time, generator: Generator = None
    ) -> Int64[Tensor, "*shape"]:
        """A draw of x_s given x_t, x_1 and hypotheses of the clean tokens."""
        return self.process.reverse_sample(clean, x_t, s, t, generator)

    def remain(self, clean: Ids, x_t: Ids, s: Time, t: Time, u: Float[Tensor, "*shape"]) -> Int64[Tensor, "*shape"]:
        """A draw of x_s where every position stays hidden, by the numbers u; where a token shows it means nothing."""
        return self.process.remain(clean, x_t, s, t, u)

    def loss(self, logits: Float[Tensor, "*shape V"], x_0: Ids, x_t: Ids, t: Time) -> LossTerms:
        """The loss density at t, whose integral bounds -log p(x_0 | x_1); zero where nothing is to be predicted."""
        return self.process.logit_loss(logits, x_0, x_t, t)


def flat_values(values: ScheduleValues, shape: torch.Size) -> ScheduleValues:
    """The schedule's values for every position of `shape`, as vectors, without a gradient in t."""
    return ScheduleValues(**{name: x.detach().expand(shape).reshape(-1) for name, x in vars(values).items()})


def with_zero_columns(off_diagonal: Float[Tensor, "*times n n"]) -> Float[Tensor, "*times n n"]:
    """A generator from its off-diagonal entries: the diagonal makes every column sum to zero."""
    off_diagonal.diagonal(dim1=-2, dim2=-1).zero_()
    return off_diagonal - torch.diag_embed(off_diagonal.sum(-2))
