"""Continuous batching: sequences of different lengths, steps and settings that share one network call.

A sequence joins at its own time and leaves when it is finished. Its randomness is a stream of its own, so it comes out
as if it had been made alone, up to rounding in the network's sums.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from multimdm.process import Mixture, Process, Streams
from multimdm.process.checks import require
from multimdm.process.places import beside
from multimdm.samplers.ancestral import Ancestral
from multimdm.samplers.batch import Batch, Network
from multimdm.samplers.clean import Hypotheses, Question, ask
from multimdm.samplers.confidence import Confidence
from multimdm.samplers.left_to_right import LeftToRight
from multimdm.samplers.loop import Moved, unfinished
from multimdm.samplers.rewrite import Rewrite
from multimdm.samplers.steps import AnyStep
from multimdm.samplers.tied import kept_end, reverse_step, shown


@dataclass(frozen=True)
class Draft:
    """One sequence under way."""

    x: Int64[Tensor, " L"]
    free: Bool[Tensor, " L"]
    """What is to be made."""
    step: AnyStep
    seed: int
    """Of its stream."""
    draws: int = 1
    """How many times its stream has been drawn from; the first was the noise."""
    k: int = 0
    """Steps done: as many network calls."""
    time: float = 1.0
    end: Int64[Tensor, " L"] | None = None
    """x_1, of a process whose noise is tied to the text."""
    numbers: Float64[Tensor, " L"] | None = None
    """What its tokens are drawn by again and again (`rewrite.py`)."""


class Top(NamedTuple):
    """The network's most probable tokens at the positions that a step asked for, and how probable they are."""

    positions: Bool[Tensor, " L"]
    ids: Int64[Tensor, "n top"]
    probs: Float[Tensor, "n top"]
    chosen: Float[Tensor, " n"]
    """log p of the tokens that were drawn there, whatever the temperature."""


class Advanced(NamedTuple):
    """A sequence after its step."""

    draft: Draft
    finished: bool
    top: Top | None
    """What the network thought of the state before the step."""


def begin(
    process: Process,
    given: Int64[Tensor, "B L"],
    free: Bool[Tensor, "B L"],
    step: AnyStep,
    seed: int,
    first: int = 0,
) -> list[Draft]:
    """Sequences first .. first + B-1 of the run with this seed, at noise; `pipeline.fill` would make the same."""
    corrector = step.corrector if isinstance(step, Ancestral) else 0
    require(corrector == 0, f"corrector must be 0 where sequences share network calls; got {corrector}")
    guidance = step.guidance if isinstance(step, Confidence) else 0
    require(guidance == 0, f"guidance must be 0 where sequences share network calls; got {guidance}")
    streams = Streams.spawn(seed, len(given), first)
    noise = process.prior(given.shape, streams, given.device)
    x, end = torch.where(free, noise, given), kept_end(process, noise)
    ends = [None] * len(x) if end is None else list(end)
    return [
        Draft(row, where, step, own, end=last)
        for row, where, own, last in zip(x, free, streams.seeds.tolist(), ends, strict=True)
    ]


@torch.no_grad()
def advance(network: Network, process: Process, drafts: Sequence[Draft], top: int = 0) -> list[Advanced]:
    """One step of every draft by one network call for all; with `top`, also the most probable tokens.

    Sequences with the same kind of step and the same choice of tokens are moved together.
    """
    kinds: dict[object, list[int]] = {}
    for place, draft in enumerate(drafts):
        kinds.setdefault(_kind(draft.step), []).append(place)
    groups = [_Group(process, [drafts[place] for place in places]) for places in kinds.values()]
    answers = _call(network, [group.question for group in groups], top)
    advanced: dict[int, Advanced] = {}
    for places, group, (hypotheses, tops) in zip(kinds.values(), groups, answers, strict=True):
        advanced |= zip(places, group.moved(process, hypotheses, tops), strict=True)
    return [advanced[place] for place in range(len(drafts))]


def _kind(step: AnyStep) -> object:
    """What must be equal for two sequences to move together: all but their times."""
    return replace(step, grid=()) if isinstance(step, Ancestral) else replace(step, num_steps=0)


class _Group:
    """Sequences that move together, padded to the longest."""

    def __init__(self, process: Process, drafts: Sequence[Draft]) -> None:
        self.drafts = drafts
        device = drafts[0].x.device
        streams = Streams([draft.seed for draft in drafts])
        streams.draws = torch.tensor([[draft.draws] for draft in drafts], device=device)
        self.batch = _padded(drafts, streams)
        self.k = torch.tensor([draft.k for draft in drafts], device=device)
        self.question, self.move = self._plan(process, drafts[0].step, device)

    def _plan(
        self, process: Process, step: AnyStep, device: torch.device
    ) -> tuple[Question, Callable[[Hypotheses], Moved]]:
        """What to ask the network, and what to do with its answer."""
        steps = [(draft.step, draft.k) for draft in self.drafts]
        if isinstance(step, Rewrite):
            batch = step.numbered(self.batch, self.k)
            return ask(process, batch, step.time(self.k), step.choice, batch.free), partial(step.move, batch)
        if isinstance(step, Confidence | LeftToRight):
            front = step.front(process, self.batch)
            K = torch.tensor([own.num_steps for own, _ in steps], device=device)
            question = ask(process, self.batch, front.t, step.choice, front.candidates, True, step.late, step.peak)
            return question, lambda answer: step.move(process, self.batch, front, answer, K, self.k)
        grids = [(own.grid, k) for own, k in steps if isinstance(own, Ancestral)]
        t, s = (torch.tensor([g[k + i] for g, k in grids], dtype=torch.float64, device=device) for i in (0, 1))
        return ask(process, self.batch, t, step.choice), partial(self._reverse, process, s, t)

    def _reverse(self, process: Process, s: Tensor, t: Tensor, answer: Hypotheses) -> Moved:
        x, free = self.batch.x, self.batch.free
        return Moved(torch.where(free, reverse_step(process, answer.clean, self.batch, s, t), x), s)

    def moved(self, process: Process, hypotheses: Hypotheses, tops: list[Top] | None) -> list[Advanced]:
        """The sequences after the step, without padding."""
        moved = self.move(hypotheses)
        going = unfinished(process, self.drafts[0].step, self.batch, moved).tolist()
        streams, now = self.batch.generator, torch.as_tensor(moved.time).tolist()
        assert isinstance(streams, Streams)
        assert isinstance(streams.draws, Tensor)
        draws = streams.draws[:, 0].tolist()
        result = []
        for row, draft in enumerate(self.drafts):
            own = slice(0, len(draft.x))
            numbers = None if moved.numbers is None else moved.numbers[row, own]
            after = replace(draft, x=moved.x[row, own], draws=draws[row], k=draft.k + 1, time=now[row], numbers=numbers)
            finished = not going[row] or after.k == draft.step.num_steps
            result.append(Advanced(after, finished, None if tops is None else tops[row]))
        return result


def _padded(drafts: Sequence[Draft], streams: Streams) -> Batch:
    """One table; padding is clean, not free, and not attended to."""
    lengths = [len(draft.x) for draft in drafts]
    shape = len(drafts), max(lengths)
    x = drafts[0].x.new_zeros(shape)
    free = torch.zeros(shape, dtype=torch.bool, device=x.device)
    for row, draft in enumerate(drafts):
        x[row, : lengths[row]], free[row, : lengths[row]] = draft.x, draft.free
    ends = [draft.end for draft in drafts if draft.end is not None]
    end = torch.nn.utils.rnn.pad_sequence(ends, batch_first=True) if ends else None
    valid = None
    if min(lengths) != max(lengths):
        valid = torch.arange(shape[1], device=x.device) < torch.tensor(lengths, device=x.device)[:, None]
    return Batch(x, free, valid, streams, end, _numbers(drafts, x))


def _numbers(drafts: Sequence[Draft], x: Int64[Tensor, "B L"]) -> Float64[Tensor, "B L"] | None:
    """Those that are kept; zeros for sequences that are still to draw theirs."""
    if all(draft.numbers is None for draft in drafts):
        return None
    numbers = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
    for row, draft in zip(numbers, drafts, strict=True):
        if draft.numbers is not None:
            row[: len(draft.numbers)] = draft.numbers
    return numbers


def _call(network: Network, questions: Sequence[Question], top: int) -> list[tuple[Hypotheses, list[Top] | None]]:
    """One network call for all questions; each chooses from its own rows of the logits."""
    confidence = any(question.confidence for question in questions)
    questions = [replace(question, confidence=confidence) for question in questions]
    ends = torch.tensor([len(question.where[0]) for question in questions]).cumsum(0).tolist()
    starts = [0, *ends[:-1]]

    def reduce(logits: Tensor, rows: slice) -> tuple[Tensor, ...]:
        parts = []
        for question, start, end in zip(questions, starts, ends, strict=True):
            first, last = max(start, rows.start), min(end, rows.stop)
            if first < last:
                own, which = logits[first - rows.start : last - rows.start], slice(first - start, last - start)
                answer = question.reduce(own, which)
                best = _best(question.posterior(own, which), top, answer[0]) if top else ()
                parts.append((*answer, *best))
        return tuple(torch.cat(column) for column in zip(*parts, strict=True))

    x, t, positions, valid = _together(questions)
    result = network(x, t, positions=positions, valid=valid, reduce=reduce)
    columns = result if isinstance(result, tuple) else (result,)
    chosen, best = columns[: 1 + confidence], columns[1 + confidence :]
    answers = []
    for question, start, end in zip(questions, starts, ends, strict=True):
        hypotheses = question.answer(*(column[start:end] for column in chosen))
        answers.append((hypotheses, _tops(question, *(column[start:end] for column in best)) if top else None))
    return answers


def _best(logits: Tensor, top: int, chosen: Tensor) -> tuple[Tensor, ...]:
    """Ids and probabilities of the most probable tokens, and log p of the chosen ones, whatever the temperature."""
    log_probs = torch.log_softmax(logits.float(), -1)
    best, ids = log_probs.topk(min(top, logits.shape[-1]), dim=-1)
    return ids, best.exp(), log_probs.gather(-1, beside(chosen, log_probs)[:, None])[:, 0]


def _tops(question: Question, *columns: Tensor) -> list[Top]:
    """Sequence by sequence."""
    counts = question.positions.sum(1).tolist()
    return [Top(*row) for row in zip(question.positions, *(column.split(counts) for column in columns), strict=True)]


def _together(questions: Sequence[Question]) -> tuple[Tensor | Mixture, Tensor, Tensor, Tensor | None]:
    """What the network is shown, times, positions and what is not padding, of all questions in one table."""
    longest = max(question.batch.x.shape[1] for question in questions)
    pad = partial(_pad_to, longest)
    batches = [question.batch for question in questions]
    x = torch.cat([pad(batch.x) for batch in batches])
    positions = torch.cat([pad(question.positions) for question in questions])
    # float32, as a network makes of a plain number: alone or together, it sees the same time.
    t = torch.cat([torch.as_tensor(question.t).to(torch.float32) for question in questions])
    whole = all(batch.valid is None and batch.x.shape[1] == longest for batch in batches)
    attended = [torch.ones_like(batch.free) if batch.valid is None else batch.valid for batch in batches]
    ends = [pad(batch.end) for batch in batches if batch.end is not None]
    free = torch.cat([pad(batch.free) for batch in batches])
    everything = Batch(x, free, end=torch.cat(ends) if ends else None)
    seen = shown(questions[0].process, everything)
    return seen, t, positions, None if whole else torch.cat([pad(valid) for valid in attended])


def _pad_to(length: int, table: Tensor) -> Tensor:
    return torch.nn.functional.pad(table, (0, length - table.shape[1]))
