"""What all routes share: the models, the engine, and waiting for work whose client may leave."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass, field
from typing import TypeVar

from fastapi import Request

from multimdm.serving.catalog import ServedModel
from multimdm.serving.engine import Engine, QueueFullError, ShuttingDownError
from multimdm.serving.errors import ApiError
from multimdm.serving.limits import Limits
from multimdm.serving.metrics import Metrics
from multimdm.serving.plans import Plan
from multimdm.serving.schemas import Drawing
from multimdm.serving.tickets import Failed, Finished, Stepped, Ticket

Asked = TypeVar("Asked", bound=Drawing)


@dataclass(frozen=True)
class Service:
    """What all routes of a server share."""

    served_models: dict[str, ServedModel]
    limits: Limits
    metrics: Metrics
    engine: Engine
    encoding: AbstractContextManager = field(default_factory=threading.Lock)
    """Held while a request is encoded: chat templates change how the tokenizer reads special tokens, for a moment."""

    def served(self, name: str | None) -> ServedModel:
        """The model of this name; the first if a request names none."""
        if name is None:
            return next(iter(self.served_models.values()))
        if name not in self.served_models:
            message = f"model: there is no '{name}' here; there are {', '.join(self.served_models)}"
            raise ApiError(404, message, "model", "model_not_found")
        return self.served_models[name]

    async def planned(self, plan: Callable[[Asked, ServedModel, Limits], Plan], request: Asked) -> Plan:
        """What a request asks for. In another thread: a long prompt is encoded while other requests are heard."""
        served = self.served(request.model)

        def one_by_one() -> Plan:
            with self.encoding:
                return plan(request, served, self.limits)

        return await asyncio.to_thread(one_by_one)

    def submit(self, plan: Plan, watched: bool = False, candidates: int = 0) -> Ticket:
        """Queue the work, or say why not."""
        try:
            return self.engine.submit(plan, watched, candidates)
        except QueueFullError as full:
            raise ApiError(429, str(full), code="queue_full", headers={"Retry-After": str(full.seconds)}) from None
        except ShuttingDownError as error:
            raise ApiError(503, str(error), headers={"Retry-After": "5", "Connection": "close"}) from None

    async def finished(
        self, ticket: Ticket, request: Request, watch: Callable[[Stepped], None] | None = None
    ) -> list[Finished]:
        """Wait for all sequences, in order. The work is dropped if the client leaves meanwhile.

        The steps of a ticket that is watched are handed to `watch`.
        """
        work, gone = asyncio.ensure_future(_ends(ticket, watch)), asyncio.ensure_future(_left(request))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
        finally:
            work.cancel()
            gone.cancel()
            self.engine.cancel(ticket)
        raise ApiError(499, "the client left before the answer was made")


async def _ends(ticket: Ticket, watch: Callable[[Stepped], None] | None) -> list[Finished]:
    ends: dict[int, Finished] = {}
    async with aclosing(ticket.events()) as events:
        async for event in events:
            if isinstance(event, Failed):
                raise ApiError(500, event.message)
            if isinstance(event, Stepped) and watch is not None:
                watch(event)
            if isinstance(event, Finished):
                ends[event.index] = event
    return [ends[index] for index in sorted(ends)]


async def _left(request: Request) -> None:
    """Returns when the client closes the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
