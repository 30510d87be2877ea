"""Continuous batching: sequences of different lengths, steps and settings that share one network call.

A sequence joins at its own time and leaves when it is finished. Its steps are those of the loop (`loop.py`), and its
randomness is a stream of its own, so it comes out as if it had been made alone, up to rounding in the network's sums.

Shapes: B sequences of L positions, the length of the longest; n positions that a step asks for in one sequence.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from multimdm._checks import require
from multimdm.process import Mixture, Process, Streams
from multimdm.process.places import beside
from multimdm.samplers.batch import Batch, Network
from multimdm.samplers.loop import unfinished
from multimdm.samplers.question import Hypotheses, Question
from multimdm.samplers.steps import AnyStep


@dataclass(frozen=True)
class Draft:
    """A sequence under way."""

    x: Int64[Tensor, " L"]
    free: Bool[Tensor, " L"]
    """What is to be made."""
    step: AnyStep
    seed: int
    """The seed of its stream."""
    draws: int = 1
    """How many times its stream has been drawn from; the first was the noise."""
    k: int = 0
    """Steps done: as many network calls."""
    time: float = 1.0
    x_1: Int64[Tensor, " L"] | None = None
    """The noise, of a process whose noise is tied to the text."""
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


def check_shared(step: AnyStep) -> None:
    """Refuse steps that cannot share a network call: guidance takes two, and a corrector has one time for all."""
    for name in ("corrector", "guidance"):
        value = getattr(step, name, 0)
        require(value == 0, f"{name} must be 0 where sequences share network calls; got {value}")


def begin(
    process: Process,
    given: Int64[Tensor, "B L"],
    free: Bool[Tensor, "B L"],
    step: AnyStep,
    seed: int,
    first: int = 0,
) -> list[Draft]:
    """Sequences first .. first + B-1 of the run with this seed, at noise; `pipeline.fill` would make the same."""
    check_shared(step)
    step.check(process, free)
    # x_1 from each sequence's own stream; x = x_1 where nothing is given
    streams = Streams.spawn(seed, len(given), first)
    noise = process.prior(given.shape, streams, given.device)
    x = torch.where(free, noise, given)
    kept = process.path_to(noise).x_1
    each_x_1 = [None] * len(x) if kept is None else list(kept)
    return [
        Draft(row, where, step, own, x_1=x_1)
        for row, where, own, x_1 in zip(x, free, streams.seeds.tolist(), each_x_1, strict=True)
    ]


@torch.no_grad()
def advance(network: Network, process: Process, drafts: Sequence[Draft], top: int = 0) -> list[Advanced]:
    """One step of every draft by one network call for all; with `top`, also the most probable tokens.

    Sequences with equal steps are moved together. Those at their last one are apart, since it may be greedy.
    """
    kinds: dict[object, list[int]] = {}
    for place, draft in enumerate(drafts):
        last = draft.k == draft.step.num_steps - 1
        kinds.setdefault((draft.step, last), []).append(place)
    groups = [_Group(process, [drafts[place] for place in places]) for places in kinds.values()]
    answers = _call(network, [group.question for group in groups], top)
    advanced: dict[int, Advanced] = {}
    for places, group, (hypotheses, tops) in zip(kinds.values(), groups, answers, strict=True):
        advanced |= zip(places, group.moved(hypotheses, tops), strict=True)
    return [advanced[place] for place in range(len(drafts))]


class _Group:
    """Sequences that move together, padded to the longest."""

    def __init__(self, process: Process, drafts: Sequence[Draft]) -> None:
        device = drafts[0].x.device
        self.drafts = drafts
        self.step = drafts[0].step
        self.k = torch.tensor([draft.k for draft in drafts], device=device)
        self.streams = Streams([draft.seed for draft in drafts])
        self.streams.draws = torch.tensor([[draft.draws] for draft in drafts], device=device)
        self.question = self.step.question(process, _padded(drafts, self.streams), self.k)

    def moved(self, hypotheses: Hypotheses, tops: list[Top] | None) -> list[Advanced]:
        """The sequences after the step, without padding."""
        moved = self.step.move(self.question, hypotheses, self.k)
        going = unfinished(self.question.process, self.step, self.question.batch, moved).tolist()
        now = torch.as_tensor(moved.time).tolist()
        assert isinstance(self.streams.draws, Tensor)
        draws = self.streams.draws[:, 0].tolist()
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
    x = pad_sequence([draft.x for draft in drafts], batch_first=True)
    free = pad_sequence([draft.free for draft in drafts], batch_first=True)
    kept = [draft.x_1 for draft in drafts if draft.x_1 is not None]
    x_1 = pad_sequence(kept, batch_first=True) if kept else None
    lengths = [len(draft.x) for draft in drafts]
    valid = None
    if min(lengths) != max(lengths):
        valid = torch.arange(x.shape[1], device=x.device) < torch.tensor(lengths, device=x.device)[:, None]
    return Batch(x, free, valid, streams, x_1, _numbers(drafts))


def _numbers(drafts: Sequence[Draft]) -> Float64[Tensor, "B L"] | None:
    """The numbers that are kept; zeros for sequences that are still to draw theirs."""
    if all(draft.numbers is None for draft in drafts):
        return None
    kept = [torch.zeros_like(one.x, dtype=torch.float64) if one.numbers is None else one.numbers for one in drafts]
    return pad_sequence(kept, batch_first=True)


def _call(network: Network, questions: Sequence[Question], top: int) -> list[tuple[Hypotheses, list[Top] | None]]:
    """One network call for all questions; each chooses from its own rows of the logits."""
    confidence = any(question.confidence for question in questions)
    questions = [replace(question, confidence=confidence) for question in questions]
    ends = torch.tensor([len(question.where[0]) for question in questions]).cumsum(0).tolist()
    starts = [0, *ends[:-1]]

    def reduce(logits: Tensor, rows: slice) -> tuple[Tensor, ...]:
        parts = []
        for question, start, end in zip(questions, starts, ends, strict=True):
            # the rows of this chunk that are the question's own, if there are any
            first = max(start, rows.start)
            last = min(end, rows.stop)
            if first < last:
                own = logits[first - rows.start : last - rows.start]
                which = slice(first - start, last - start)
                answer = question.reduce(own, which)
                best = _best(question.posterior(own, which), top, answer[0]) if top else ()
                parts.append((*answer, *best))
        return tuple(torch.cat(column) for column in zip(*parts, strict=True))

    x, t, positions, valid = _together(questions)
    result = network(x, t, positions=positions, valid=valid, reduce=reduce)
    columns = result if isinstance(result, tuple) else (result,)
    chosen = columns[: 1 + confidence]
    best = columns[1 + confidence :]
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
    """The most probable tokens, sequence by sequence."""
    counts = question.positions.sum(1).tolist()
    return [Top(*row) for row in zip(question.positions, *(column.split(counts) for column in columns), strict=True)]


def _together(questions: Sequence[Question]) -> tuple[Tensor | Mixture, Tensor, Tensor, Tensor | None]:
    """What the network is shown, times, positions and what is not padding, of all questions in one table."""
    batches = [question.batch for question in questions]
    longest = max(batch.x.shape[1] for batch in batches)
    # float32, as a network makes of a plain number: alone or together, it sees the same time.
    t = torch.cat([torch.as_tensor(question.t).to(torch.float32) for question in questions])
    whole = all(batch.valid is None and batch.x.shape[1] == longest for batch in batches)
    attended = [torch.ones_like(batch.free) if batch.valid is None else batch.valid for batch in batches]
    kept = [batch.x_1 for batch in batches if batch.x_1 is not None]
    x = _stacked([batch.x for batch in batches], longest)
    free = _stacked([batch.free for batch in batches], longest)
    path = questions[0].process.path_to(_stacked(kept, longest) if kept else None)
    positions = _stacked([question.positions for question in questions], longest)
    return path.shown(x, given=~free), t, positions, None if whole else _stacked(attended, longest)


def _stacked(tables: Sequence[Tensor], length: int) -> Tensor:
    """All rows of the tables in one, with zeros (or False) behind the shorter ones."""
    return torch.cat([torch.nn.functional.pad(table, (0, length - table.shape[1])) for table in tables])
