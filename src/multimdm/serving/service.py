"""What all routes share: the models, the engine, and waiting for work whose client may leave."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from fastapi import Request

from multimdm.serving.catalog import Offer
from multimdm.serving.engine import Engine, QueueFullError, ShuttingDownError
from multimdm.serving.errors import ApiError
from multimdm.serving.limits import Limits
from multimdm.serving.metrics import Metrics
from multimdm.serving.plans import Plan
from multimdm.serving.schemas import Drawing
from multimdm.serving.tickets import Failed, Finished, Ticket


@dataclass(frozen=True)
class Service:
    """One per server."""

    offers: dict[str, Offer]
    limits: Limits
    metrics: Metrics
    engine: Engine

    def offer(self, request: Drawing) -> Offer:
        """The model that a request names; the first if it names none."""
        if request.model is None:
            return next(iter(self.offers.values()))
        if request.model not in self.offers:
            raise ApiError(
                404,
                f"model: there is no '{request.model}' here; there are {', '.join(self.offers)}",
                "model",
                "model_not_found",
            )
        return self.offers[request.model]

    def submit(self, plan: Plan, watched: bool = False, candidates: int = 0) -> Ticket:
        """Queue the work, or say why not."""
        try:
            return self.engine.submit(plan, watched, candidates)
        except QueueFullError as full:
            raise ApiError(429, str(full), code="queue_full", headers={"Retry-After": str(full.seconds)}) from None
        except ShuttingDownError as error:
            raise ApiError(503, str(error), headers={"Retry-After": "5", "Connection": "close"}) from None

    @asynccontextmanager
    async def cancelled_on_leaving(self, ticket: Ticket) -> AsyncIterator[Ticket]:
        """Whoever stops waiting, for whatever reason, leaves no work behind."""
        try:
            yield ticket
        finally:
            self.engine.cancel(ticket)

    async def finished(self, ticket: Ticket, request: Request) -> list[Finished]:
        """All sequences, in order. The work is dropped if the client leaves meanwhile."""
        async with self.cancelled_on_leaving(ticket):
            work, gone = asyncio.ensure_future(_ends(ticket)), asyncio.ensure_future(_left(request))
            try:
                await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    return work.result()
            finally:
                work.cancel()
                gone.cancel()
        raise ApiError(499, "the client left before the answer was made")


async def _ends(ticket: Ticket) -> list[Finished]:
    ends: dict[int, Finished] = {}
    async with aclosing(ticket.events()) as events:
        async for event in events:
            if isinstance(event, Failed):
                raise ApiError(500, event.message)
            if isinstance(event, Finished):
                ends[event.index] = event
    return [ends[index] for index in sorted(ends)]


async def _left(request: Request) -> None:
    """Returns when the client closes the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
