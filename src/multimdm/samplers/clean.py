"""Hypotheses of the clean tokens: a draw per active position, made inside the network's head.

Temperature, top-k and top-p act on the network's prediction of the clean token, as in App. (tau); what the process
makes of the prediction comes after. Where the prediction is the posterior, as the paper's is for masks, nothing more
happens. For uniform states, and for masks that are read by Bayes' rule, it is what the context says, and the evidence
of the current state joins afterwards: a temperature on the posterior would also bend the noise process, whose law is
known. Who wants that can have it (`Choice.on`).
Where x_1 is kept, what it tells joins first, and the rest acts on the posterior given x_t and x_1: the most probable
token given x_t alone may be impossible given both.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from multimdm.process import MultiMask, Process, Time, fused_readout
from multimdm.process.anchored import told_of_end
from multimdm.process.draws import draw_token, invert_cdf, uniform
from multimdm.process.fusing import fuses
from multimdm.process.places import beside, has_float64
from multimdm.process.precision import widened
from multimdm.samplers.batch import Batch, Network
from multimdm.samplers.settings import TemperatureOn
from multimdm.samplers.tied import shown


@dataclass(frozen=True)
class Choice:
    """How a clean token is chosen from logits g: softmax(g / temperature), cut to top-k, then to top-p."""

    temperature: float | int = 1.0
    """tau of App. (tau); 0 takes the most probable token."""
    top_p: float | int = 1.0
    """Keep the fewest most probable tokens that hold this share of the probability."""
    top_k: int | None = None
    """Keep this many most probable tokens."""
    greedy: bool = False
    """Take the most probable token of the posterior instead of drawing from it."""
    never: tuple[int, ...] = ()
    """Tokens that are not chosen, whatever their probability."""
    on: TemperatureOn = "prediction"
    """What temperature, top-k and top-p act on: what the network predicts, before the evidence of the state joins, or
    the posterior. Where the prediction is the posterior, it is the same."""

    @property
    def certain(self) -> bool:
        """Whether nothing is drawn."""
        return self.greedy or self.temperature == 0

    @property
    def whole(self) -> bool:
        """Whether no token is cut off."""
        return self.top_p >= 1 and self.top_k is None

    def allowed(self, logits: Float[Tensor, "n V"]) -> Float[Tensor, "n V"]:
        """Without the tokens that are never chosen."""
        return without(logits, self.never)

    def weights(self, logits: Float[Tensor, "n V"]) -> Float[Tensor, "n V"]:
        """The prediction up to a factor per row, in float32 or better; bfloat16 logits are widened first."""
        logits = self.allowed(widened(logits))
        if self.temperature == 0:
            best = logits.argmax(-1, keepdim=True)
            return torch.zeros_like(logits).scatter_(-1, best, 1.0)
        scaled = logits if self.temperature == 1 else logits / self.temperature
        return keep_top_p(keep_top_k(torch.softmax(scaled, -1), self.top_k), self.top_p)


def without(logits: Float[Tensor, "n V"], tokens: tuple[int, ...]) -> Float[Tensor, "n V"]:
    """Logits that give these tokens no probability."""
    if not tokens:
        return logits
    return logits.index_fill(-1, torch.tensor(tokens, device=logits.device), -torch.inf)


def keep_top_k(weights: Float[Tensor, "n V"], k: int | None) -> Float[Tensor, "n V"]:
    """The k largest weights of each row; the rest are zero."""
    if k is None or k >= weights.shape[-1]:
        return weights
    largest = weights.topk(k, dim=-1)
    return torch.zeros_like(weights).scatter_(-1, largest.indices, largest.values)


def keep_top_p(weights: Float[Tensor, "n V"], p: float | int) -> Float[Tensor, "n V"]:
    """The fewest largest weights of each row that together reach the share p of its sum; the rest are zero."""
    if p >= 1:
        return weights
    ordered = torch.sort(weights, dim=-1, descending=True, stable=True)
    # A table, so it stays where it is: without float64 the cut may be a token off where the share is met within 1e-6.
    widest = torch.float64 if has_float64(weights.device) else torch.float32
    running = ordered.values.to(widest).cumsum(-1)
    before = running - ordered.values
    outside = before >= p * running[..., -1:]
    outside[..., 0] = False  # rounding may not empty a row
    return torch.zeros_like(weights).scatter_(-1, ordered.indices, ordered.values.masked_fill(outside, 0.0))


USUAL = Choice()
"""Draw from the prediction as it is."""


class Hypotheses(NamedTuple):
    """Clean tokens for the whole batch; where none was asked for, the token that is there (or the last one)."""

    clean: Int64[Tensor, "B L"]
    confidence: Float[Tensor, "B L"] | None
    """The posterior probability of the chosen token, whatever the temperature; zero where none was asked for, and
    for tokens that are to come late."""


@dataclass(frozen=True)
class Question:
    """Which clean tokens of a batch are wanted and how they are chosen from the network's logits.

    The network call is left to the caller, who may put several questions into one (`joint.py`).
    """

    process: Process
    batch: Batch
    t: Time
    choice: Choice
    positions: Bool[Tensor, "B L"]
    where: tuple[Int64[Tensor, " N"], ...]
    """The same as indices, in row-major order."""
    numbers: Tensor | None
    """One per position that is asked for, in row-major order; None if nothing is left to chance."""
    confidence: bool = False
    late: tuple[int, ...] = ()
    """Tokens that have no confidence."""
    peak: bool = False
    """Whether the confidence is that of the most probable token instead of the chosen one: the state alone tells it."""

    def reduce(self, logits: Tensor, rows: slice) -> tuple[Tensor, ...]:
        """Tokens (and their probabilities) for some of the packed rows."""
        x_t = self._states[rows]
        t = self._times[rows] if isinstance(self._times, Tensor) else self._times
        u = None if self.numbers is None else self.numbers[rows]
        logits = self.choice.allowed(self.told(logits, rows))
        chosen = _choose(self.process, self.choice, logits, x_t, t, u)
        if not self.confidence:
            return (chosen,)
        return chosen, self.sureness(self.process.posterior_logits(logits, x_t, t), chosen)

    def sureness(self, posterior: Float[Tensor, "n V"], chosen: Int64[Tensor, " n"]) -> Float[Tensor, " n"]:
        """The confidence of some of the packed rows, given logits of the posterior."""
        if fuses(posterior):
            token = posterior.argmax(-1) if self.peak else chosen
            return fused_readout.picked(without(posterior, self.late), token).exp()
        probs = torch.softmax(without(widened(posterior), self.late), -1)
        return probs.amax(-1) if self.peak else probs.gather(-1, beside(chosen, probs)[:, None])[:, 0]

    def posterior(self, logits: Tensor, rows: slice) -> Tensor:
        """Logits of p(x_0 | x_t) for some of the packed rows, whatever is to be chosen."""
        t = self._times[rows] if isinstance(self._times, Tensor) else self._times
        return self.process.posterior_logits(self.told(logits, rows), self._states[rows], t)

    def told(self, logits: Tensor, rows: slice) -> Tensor:
        """The prediction for some of the packed rows, with what a kept x_1 tells."""
        if self._ends is None:
            return logits
        assert isinstance(self.process, MultiMask)
        t = self._times[rows] if isinstance(self._times, Tensor) else self._times
        return told_of_end(self.process, logits, self._states[rows], self._ends[rows], t)

    @cached_property
    def _ends(self) -> Int64[Tensor, " N"] | None:
        """x_1 at the packed positions, if it is kept."""
        return None if self.batch.end is None else self.batch.end[self.where]

    @cached_property
    def _states(self) -> Int64[Tensor, " N"]:
        """x_t at the packed positions; once, since the head comes in many chunks."""
        return self.batch.x[self.where]

    @cached_property
    def _times(self) -> Time:
        """Of the packed positions, or one for all."""
        return self.t[self.where[0]] if isinstance(self.t, Tensor) else self.t

    def answer(self, chosen: Tensor | None = None, sure: Tensor | None = None) -> Hypotheses:
        """What `reduce` made of all packed rows, at its places; without it, of a question that asks for nothing."""
        clean = self.batch.x.clamp_max(self.process.vocab_size - 1)
        confidence = torch.zeros(clean.shape, device=clean.device) if self.confidence else None
        if chosen is not None:
            clean[self.where] = chosen
        if confidence is not None and sure is not None:
            confidence = confidence.to(sure.dtype).index_put(self.where, sure)
        return Hypotheses(clean, confidence)


def ask(
    process: Process,
    batch: Batch,
    t: Time,
    choice: Choice,
    positions: Bool[Tensor, "B L"] | None = None,
    confidence: bool = False,
    late: tuple[int, ...] = (),
    peak: bool = False,
) -> Question:
    """A question for the active free positions (or `positions`).

    `Streams` go on by one draw, unless all is certain or the batch has its numbers.
    """
    if positions is None:
        positions = process.active(batch.x) & batch.free
    where = positions.nonzero(as_tuple=True)  # once: on a GPU it waits for the positions
    numbers = None
    if not choice.certain:
        kept = batch.numbers
        numbers = (uniform(batch.x.shape, batch.generator, batch.x.device) if kept is None else kept)[where]
    return Question(process, batch, t, choice, positions, where, numbers, confidence, late, peak)


def draw_clean(
    network: Network,
    process: Process,
    batch: Batch,
    t: Time,
    choice: Choice,
    positions: Bool[Tensor, "B L"] | None = None,
    confidence: bool = False,
    late: tuple[int, ...] = (),
    peak: bool = False,
) -> Hypotheses:
    """x_0^l ~ p^theta(x_0^l | x_t) at the active free positions (or at `positions`), by one number each.

    One network call; none if no position is asked for, but `Streams` go on by one draw in either case. Only tokens
    leave the head: no [B, L, V] table lives.
    """
    question = ask(process, batch, t, choice, positions, confidence, late, peak)
    if len(question.where[0]) == 0:
        return question.answer()
    result = network(shown(process, batch), t, positions=question.positions, valid=batch.valid, reduce=question.reduce)
    return question.answer(*(result if isinstance(result, tuple) else (result,)))


def law_of_choice(
    process: Process, choice: Choice, logits: Float[Tensor, "n V"], x_t: Int64[Tensor, " n"], t: Time
) -> Float[Tensor, "n V"]:
    """The law that a clean token is drawn from, up to a factor per row, at a temperature above 0."""
    if choice.on == "posterior":
        return choice.weights(process.posterior_logits(logits, x_t, t))
    return process.posterior_weights(choice.weights(logits), x_t, t)


def _choose(process: Process, choice: Choice, logits: Tensor, x_t: Tensor, t: Time, u: Tensor | None) -> Tensor:
    """One clean token per row of logits."""
    if choice.temperature == 0:  # a point mass is its own posterior
        return (process.posterior_logits(logits, x_t, t) if choice.on == "posterior" else logits).argmax(-1)
    if u is not None and choice.whole and fuses(logits):
        return draw_token(_scaled_posterior(process, choice, logits, x_t, t), u)
    weights = law_of_choice(process, choice, logits, x_t, t)
    return weights.argmax(-1) if u is None else invert_cdf(weights, u)


def _scaled_posterior(process: Process, choice: Choice, logits: Tensor, x_t: Tensor, t: Time) -> Tensor:
    """Logits of the posterior, with the temperature on what the choice says."""
    if choice.on == "posterior":
        return process.posterior_logits(logits, x_t, t) / choice.temperature
    return process.posterior_logits(logits if choice.temperature == 1 else logits / choice.temperature, x_t, t)
