"""What an answer waits for: a request in the engine, seen from the event loop."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from multimdm.samplers.joint import Draft, Top
from multimdm.serving.plans import Plan


class Stepped(NamedTuple):
    """A sequence has made a step."""

    index: int
    k: int
    """Steps done before."""
    t: float
    """The time before the step."""
    before: Tensor
    after: Tensor
    top: Top | None

    @classmethod
    def of(cls, index: int, before: Draft, after: Draft, top: Top | None) -> "Stepped":
        """Copies in main memory: rows of a shared table keep all of it, and the event loop must not wait for a GPU."""
        if top is not None:
            top = Top(_own(top.positions[: len(before.x)]), _own(top.ids), _own(top.probs), _own(top.chosen))
        return cls(index, before.k, before.time, _own(before.x), _own(after.x), top)


def _own(part: Tensor) -> Tensor:
    return part.to("cpu", copy=True)


class Finished(NamedTuple):
    """A sequence is done."""

    index: int
    ids: list[int]
    calls: int


class Failed(NamedTuple):
    """Nothing more will come."""

    message: str


Event = Stepped | Finished | Failed


@dataclass(eq=False)
class Ticket:
    """Events come from the engine's thread and are read in the event loop."""

    plan: Plan
    watched: bool
    """Whether steps are to be told, not only ends."""
    candidates: int
    """Most probable tokens to tell with every step."""
    cancelled: bool = False
    submitted: float = field(default_factory=time.perf_counter)
    started: float | None = None
    ended: float | None = None
    _events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def tell(self, event: Event) -> None:
        """Called in the engine's thread."""
        if self.cancelled:
            return
        with suppress(RuntimeError):  # the loop was closed meanwhile: there is no one to tell
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    async def events(self) -> AsyncGenerator[Event, None]:
        """All of them, until every sequence is done or one thing failed."""
        left = len(self.plan.slots)
        while left:
            event = await self._events.get()
            yield event
            if isinstance(event, Failed):
                return
            left -= isinstance(event, Finished)

    def cost(self, calls: int) -> dict[str, int | float]:
        """What the answers tell of it: network calls, the time that they took, and the time in the queue before."""
        started = self.started or self.submitted
        return {
            "network_calls": calls,
            "milliseconds": round(1000 * ((self.ended or started) - started), 2),
            "waited_milliseconds": round(1000 * (started - self.submitted), 2),
        }
