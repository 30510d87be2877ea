"""A question to the network: which clean tokens are wanted, and how they are chosen inside its head.

Where x_1 is kept, the prediction is first conditioned on it, and temperature, top-k and top-p act on the posterior
given x_t and x_1: the most probable token given x_t alone may be impossible given both.

Shapes: B sequences of L positions; N positions that are asked for, packed in row-major order, of which the head
handles n at a time; V clean tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from multimdm.process import Mixture, Path, Process, Time, fused_readout
from multimdm.process.draws import uniform
from multimdm.process.places import at_home, beside, chunk_rows, fuses, widened
from multimdm.samplers.batch import Batch, Network
from multimdm.samplers.blocks import Front
from multimdm.samplers.choice import Choice, without

_CHUNK_ENTRIES = 2**23
"""Entries of the logits that guidance makes at a time."""


class Hypotheses(NamedTuple):
    """Clean tokens for the whole batch; where none was asked for, the token that is there (or the last one)."""

    clean: Int64[Tensor, "B L"]
    confidence: Float[Tensor, "B L"] | None
    """The posterior probability of the chosen token, whatever the temperature; zero where none was asked for, and
    for tokens that are to come late."""


class Guidance(NamedTuple):
    """Classifier-free guidance: away from what the network would say without the prompt."""

    scale: float | int
    unprompted: Tensor | Mixture
    """What the network is shown for that: the batch with all given tokens replaced by noise."""


@dataclass(frozen=True)
class Question:
    """Which clean tokens of a batch are wanted and how they are chosen from the network's logits.

    Put to the network by itself (`put_to`), or with others in one call (`joint.py`). Only tokens and their
    probabilities leave the head: no [B, L, V] table lives.
    """

    process: Process
    batch: Batch
    t: Time
    choice: Choice
    positions: Bool[Tensor, "B L"]
    where: tuple[Int64[Tensor, " N"], ...]
    """The positions as indices, in row-major order."""
    numbers: Float64[Tensor, " N"] | None
    """One per position that is asked for; None if nothing is left to chance."""
    confidence: bool = False
    """Whether the probabilities of the chosen tokens are wanted, too."""
    late: tuple[int, ...] = ()
    """Tokens that have no confidence."""
    peak: bool = False
    """Whether the confidence is that of the most probable token instead of the chosen one: the state alone tells it."""
    front: Front | None = None
    """The blocks that the positions are of, if there are blocks."""
    guidance: Guidance | None = None

    def put_to(self, network: Network) -> Hypotheses:
        """The answer by one network call, or by two with guidance; by none if no position is asked for."""
        if len(self.where[0]) == 0:
            return self.answer()
        if self.guidance is not None:
            network = guided(network, self.process.vocab_size, self.guidance)
        # Of given tokens and of padding the noise is not known.
        shown = self.path.shown(self.batch.x, given=~self.batch.free)
        result = network(shown, self.t, positions=self.positions, valid=self.batch.valid, reduce=self.reduce)
        return self.answer(*(result if isinstance(result, tuple) else (result,)))

    def reduce(self, logits: Float[Tensor, "n V"], rows: slice) -> tuple[Tensor, ...]:
        """Tokens (and their probabilities) for some of the packed rows."""
        x_t = self._states[rows]
        t = self._times_of(rows)
        u = None if self.numbers is None else self.numbers[rows]
        # log p(x_0 | x_t, x_1), then a token by temperature, top-k, top-p and the number u
        logits = self.choice.allowed(self._packed_path.at(rows).condition(logits, x_t, t))
        chosen = self.choice.token(self.process, logits, x_t, t, u)
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

    def posterior(self, logits: Float[Tensor, "n V"], rows: slice) -> Float[Tensor, "n V"]:
        """Logits of p(x_0 | x_t, x_1) for some of the packed rows, whatever is to be chosen."""
        return self._packed_path.at(rows).posterior_logits(logits, self._states[rows], self._times_of(rows))

    def answer(self, chosen: Tensor | None = None, sure: Tensor | None = None) -> Hypotheses:
        """What `reduce` made of all packed rows, at its places; without it, of a question that asks for nothing."""
        clean = self.batch.x.clamp_max(self.process.vocab_size - 1)
        confidence = torch.zeros(clean.shape, device=clean.device) if self.confidence else None
        if chosen is not None:
            clean[self.where] = chosen
        if confidence is not None and sure is not None:
            confidence = confidence.to(sure.dtype).index_put(self.where, sure)
        return Hypotheses(clean, confidence)

    @cached_property
    def path(self) -> Path:
        """The paths that the sequences are on: to x_1, where it is kept."""
        return self.process.path_to(self.batch.x_1)

    @cached_property
    def _packed_path(self) -> Path:
        """The paths of the packed positions."""
        return self.path.at(self.where)

    @cached_property
    def _states(self) -> Int64[Tensor, " N"]:
        """x_t at the packed positions; once, since the head comes in many chunks."""
        return self.batch.x[self.where]

    @cached_property
    def _times(self) -> Time:
        """The times of the packed positions, or one for all."""
        return self.t[self.where[0]] if isinstance(self.t, Tensor) else self.t

    def _times_of(self, rows: slice) -> Time:
        return self._times[rows] if isinstance(self._times, Tensor) else self._times


def ask(
    process: Process,
    batch: Batch,
    t: Time,
    choice: Choice,
    positions: Bool[Tensor, "B L"] | None = None,
    **further: Any,
) -> Question:
    """A question for x_0^l ~ p^theta(x_0^l | x_t) at the active free positions (or at `positions`), by one number each.

    `Streams` go on by one draw, unless all is certain or the batch has its numbers. `further` are other fields of
    `Question`.
    """
    if positions is None:
        positions = process.active(batch.x) & batch.free
    where = positions.nonzero(as_tuple=True)  # once: on a GPU it waits for the positions
    numbers = None
    if not choice.certain:
        kept = batch.numbers
        numbers = (uniform(batch.x.shape, batch.generator, batch.x.device) if kept is None else kept)[where]
    return Question(process, batch, t, choice, positions, where, numbers, **further)


def guidance_of(process: Process, batch: Batch, scale: float | int) -> Guidance | None:
    """Guidance of this scale for the batch; 0 is off. With one mask the noise is the mask, as in LLaDA."""
    if scale == 0:
        return None
    given = ~batch.free if batch.valid is None else ~batch.free & batch.valid
    noise = process.prior(batch.x.shape, batch.generator, batch.x.device) if batch.x_1 is None else batch.x_1
    x = torch.where(given, noise, batch.x)
    # Without the given tokens all is free: where they stood, x_1 counts as it does elsewhere.
    return Guidance(scale, process.path_to(batch.x_1).shown(x, given=~(batch.free | given)))


def guided(network: Network, vocab_size: int, guidance: Guidance) -> Network:
    """logits = u + (1 + scale) (c - u): c is the prediction, u that with all given tokens replaced by noise.

    Two network calls for one. The network needs the methods `features` and `logits`, so that the two tables of logits
    are made chunk by chunk.
    """

    def call(
        x_t: Tensor | Mixture, t: Time, positions: Tensor, valid: Tensor | None, reduce: Any
    ) -> tuple[Tensor, ...]:
        features: Callable[..., Tensor] = network.features  # pyright: ignore[reportFunctionMemberAccess]
        logits: Callable[[Tensor], Tensor] = network.logits  # pyright: ignore[reportFunctionMemberAccess]
        with_prompt = features(x_t, t, positions, valid)
        without_it = features(guidance.unprompted, t, positions, valid)
        rows_per_chunk = chunk_rows(vocab_size, positions, _CHUNK_ENTRIES)
        parts = []
        for start in range(0, len(with_prompt), rows_per_chunk):
            rows = slice(start, min(start + rows_per_chunk, len(with_prompt)))
            c = logits(with_prompt[rows])
            u = logits(without_it[rows])
            # Tokens that are never predicted have -inf in both, whose difference is no number.
            result = reduce(torch.where(c.isneginf(), c, u + (1 + guidance.scale) * (c - u)), rows)
            parts.append(tuple(map(at_home, result if isinstance(result, tuple) else (result,))))
        return tuple(torch.cat(column) for column in zip(*parts, strict=True))

    return call
