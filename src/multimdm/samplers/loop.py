"""The loop of all samplers: it starts from noise, counts network calls, keeps the trace, lets finished sequences go.

Shapes: B sequences of L positions.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from multimdm._checks import require
from multimdm.process import AnyProcess, Generator, Process, Streams, Time
from multimdm.process.checks import check_ids, check_same_shape, kind_of
from multimdm.samplers.batch import Batch, Count, Network
from multimdm.samplers.question import Hypotheses, Question
from multimdm.samplers.trace import Trace

Watch = Callable[[int, int, Tensor], None]
"""Called after every step with (steps done, steps in all, states [B, L]): progress bars, streams of pictures."""


class Moved(NamedTuple):
    """What a step gives back."""

    x: Int64[Tensor, "B L"]
    time: Time
    """The new time, one for all or one per sequence."""
    finished: Bool[Tensor, " B"] | None = None
    """Sequences that no further step would change; None is those without active positions, unless the step revises."""
    numbers: Float64[Tensor, "B L"] | None = None
    """What the next step is to draw by again."""


@runtime_checkable
class Step(Protocol):
    """One move of the batch towards the data: a question to the network, and what is made of its answer.

    The loop below asks for one batch, continuous batching (`joint.py`) for many together, whose sequences may be at
    different k. What is made is the same.
    """

    @property
    def num_steps(self) -> int:
        """K: how many moves there are at most."""
        ...

    @property
    def revises(self) -> bool:
        """Whether a sequence without active positions may still change."""
        ...

    def check(self, process: Process, free: Bool[Tensor, "B L"] | None = None) -> None:
        """Raise a ValueError if the process, or what is free in it, does not allow such steps."""
        ...

    def question(self, process: Process, batch: Batch, k: Count) -> Question:
        """What move number k = 0 .. K-1 has to know; all randomness of the answer is drawn here."""
        ...

    def move(self, question: Question, hypotheses: Hypotheses, k: Count) -> Moved:
        """Move number k, given the answer to its question; fixed positions stay."""
        ...


@dataclass(frozen=True)
class Generated:
    """Finished sequences and what they cost."""

    ids: Int64[Tensor, "B L"]
    calls: Int64[Tensor, " B"]
    """Network calls that each sequence took part in: K, or fewer if it was finished earlier."""
    trace: Trace | None = None

    @property
    def nfe(self) -> int:
        """Network calls one after another."""
        return int(self.calls.max())


@torch.no_grad()
def generate(
    network: Network,
    process: Process,
    step: Step,
    given: Int64[Tensor, "B L"],
    fixed: Bool[Tensor, "B L"] | None = None,
    valid: Bool[Tensor, "B L"] | None = None,
    generator: Generator = None,
    trace: bool = False,
    watch: Watch | None = None,
    x_1: Int64[Tensor, "B L"] | None = None,
) -> Generated:
    """x_{t_K} ~ prior, then x_{t_{k-1}} from x_{t_k} by `step`, K times at most. Algs. (sampling, few_step_generation).

    Ids of `given` are kept where `fixed` says so and where `valid` says padding; all other positions are made. With
    `Streams` (which then serve this call alone) a sequence's result does not depend on its neighbours. If `x_1` is
    given, it stands for the prior's draw.
    """
    free = free_positions(process, given, fixed, valid, generator)
    step.check(process, free)
    if x_1 is None:
        x_1 = process.prior(given.shape, generator, given.device)
    check_same_shape("x_1", x_1, "given", given)
    # x_{t_K} = x_1 where nothing is given
    x = torch.where(free, x_1, given)
    batch = Batch(x, free, valid, generator, process.path_to(x_1).x_1)
    place = torch.arange(len(x), device=x.device)
    ids = x.clone()
    calls = torch.zeros(len(x), dtype=torch.long, device=x.device)
    states = [x]
    times = [torch.ones(len(x), dtype=torch.float64, device=x.device)]
    going = free.any(1)
    for k in range(step.num_steps):
        # finished sequences leave the batch; `place` tells where the others belong
        if not bool(going.all()):
            batch = batch.rows(going)
            place = place[going]
            going = going[going]
        time = torch.zeros_like(times[0])
        if len(place):
            # one question, one move
            counted = _Counted(network)
            question = step.question(process, batch, k)
            moved = step.move(question, question.put_to(counted), k)
            going = unfinished(process, step, batch, moved)
            batch = replace(batch, x=moved.x, numbers=moved.numbers)
            ids[place] = moved.x
            time[place] = torch.as_tensor(moved.time, dtype=time.dtype, device=time.device)
            calls[place] += counted.calls
        if trace:
            states.append(ids.clone())
            times.append(time)
        if watch is not None:
            watch(k + 1, step.num_steps, ids)
    return Generated(ids, calls, Trace(torch.stack(states), torch.stack(times)) if trace else None)


def unfinished(process: Process, step: Step, batch: Batch, moved: Moved) -> Bool[Tensor, " B"]:
    """The sequences that a further step may change."""
    if moved.finished is not None:
        return ~moved.finished
    return (process.active(moved.x) & batch.free).any(1) | step.revises


class _Counted:
    """The network, with a count of its calls."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.calls = 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.calls += 1
        return self.network(*arguments, **named)

    def features(self, *arguments: Any) -> Tensor:
        """A call up to the head."""
        self.calls += 1
        return self.network.features(*arguments)  # pyright: ignore[reportFunctionMemberAccess]

    def logits(self, features: Tensor) -> Tensor:
        """The rest of it, which is counted already."""
        return self.network.logits(features)  # pyright: ignore[reportFunctionMemberAccess]


def free_positions(
    process: AnyProcess, given: Tensor, fixed: Tensor | None, valid: Tensor | None, generator: Generator
) -> Bool[Tensor, "B L"]:
    """The positions to be made; errors for what does not fit together."""
    check_ids("given", given, process.num_states)
    require(
        given.ndim == 2 and given.numel() > 0,
        f"given must be a table [B, L] with at least one position; got shape {list(given.shape)}",
    )
    free = torch.ones_like(given, dtype=torch.bool)
    for name, mask, meaning in (("fixed", fixed, False), ("valid", valid, True)):
        if mask is not None:
            require(mask.dtype == torch.bool, f"{name} must be a bool tensor; got {kind_of(mask)}")
            check_same_shape(name, mask, "given", given)
            free &= mask == meaning
    unknown = int((~free & ((given < 0) | (given >= process.vocab_size))).sum())
    require(
        unknown == 0,
        f"given must hold clean tokens, 0..{process.vocab_size - 1}, where it is fixed or padding; "
        f"it does not at {unknown} positions",
    )
    require(
        not isinstance(generator, Streams) or len(generator) == len(given),
        f"generator must have one stream per sequence, {len(given)}; "
        f"got {len(generator) if isinstance(generator, Streams) else 0}",
    )
    return free
