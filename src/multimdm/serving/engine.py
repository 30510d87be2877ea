"""The engine: a thread that runs network calls, shared by all sequences that are under way.

A request joins as soon as there is room, at noise, while others are half done; it leaves when its last sequence is
finished. One thread does all the work: two network calls at once would only fight for the same cores.
"""

import logging
import math
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from multimdm.samplers.joint import Draft, advance
from multimdm.serving.catalog import ServedModel
from multimdm.serving.limits import Limits
from multimdm.serving.metrics import Metrics
from multimdm.serving.plans import Plan
from multimdm.serving.tickets import Failed, Finished, Stepped, Ticket

_LOG = logging.getLogger("multimdm.serving")
_MEMORY = 0.9
"""How much of the usual time of a sequence stays when a new one is learnt."""


class QueueFullError(Exception):
    """Too many requests are waiting."""

    def __init__(self, waiting: int, seconds: int) -> None:
        super().__init__(f"{waiting} requests are waiting already; try again in {seconds} s")
        self.seconds = seconds


class ShuttingDownError(Exception):
    """The server takes no more work."""


@dataclass(eq=False)
class _Request:
    """A ticket in work."""

    ticket: Ticket
    waiting: deque[tuple[int, Draft]]
    """Sequences for which there was no room yet."""
    left: int
    """Sequences that are not finished."""


@dataclass(frozen=True)
class _Row:
    request: _Request
    index: int
    draft: Draft


class Engine:
    """Start it, submit plans, close it; what was submitted before is finished."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._limits, self._metrics = limits, metrics
        self._queue: deque[Ticket] = deque()
        self._begun: _Request | None = None
        """The request of which some sequences still wait for room."""
        self._rows: list[_Row] = []
        self._changed = threading.Condition()
        self._closing = False
        self._usual_seconds = 0.1
        self._thread = threading.Thread(target=self._run, name="multimdm-engine", daemon=True)
        metrics.gauge("multimdm_queue_requests", "Requests that wait.", lambda: len(self._queue))
        metrics.gauge("multimdm_running_sequences", "Sequences under way.", lambda: len(self._rows))

    def start(self) -> None:
        """Start the thread that computes."""
        self._thread.start()

    def close(self) -> None:
        """Finish what was submitted, then stop."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self.alive:
            self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether what is submitted will be done."""
        return self._thread.is_alive()

    def submit(self, plan: Plan, watched: bool = False, candidates: int = 0) -> Ticket:
        """Queue the work; called in the event loop."""
        with self._changed:
            if self._closing or not self.alive:
                raise ShuttingDownError("the server is shutting down")
            waiting = len(self._queue)
            if waiting >= self._limits.queue:
                self._metrics.add("multimdm_rejected_total")
                raise QueueFullError(waiting, math.ceil(self._usual_seconds * (1 + waiting / self._limits.batch)))
            ticket = Ticket(plan, watched, candidates)
            self._queue.append(ticket)
            self._changed.notify()
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Its client left: its place in the queue is free, and its work is dropped before the next network call."""
        if ticket.ended is None and not ticket.cancelled:
            ticket.cancelled = True
            self._metrics.add("multimdm_cancelled_total")
            with self._changed, suppress(ValueError):  # it may have begun
                self._queue.remove(ticket)

    # ------------------------------------------------------- in the engine's thread

    def _run(self) -> None:
        while self._wait_for_work():
            try:
                self._turn()
            except Exception:
                self._fail_all()

    def _wait_for_work(self) -> bool:
        """False when all is done and the engine is to stop."""
        with self._changed:
            while not (self._queue or self._begun or self._rows):
                if self._closing:
                    return False
                self._changed.wait()
        return True

    def _turn(self) -> None:
        """One step of everything that is under way."""
        self._rows = [row for row in self._rows if not row.request.ticket.cancelled]
        self._admit()
        served_models: dict[ServedModel, list[_Row]] = {}
        for row in self._rows:
            served_models.setdefault(row.request.ticket.plan.served, []).append(row)
        self._rows = [row for served, rows in served_models.items() for row in self._step(served, rows)]

    def _admit(self) -> None:
        """Fill the room that there is, first come, first served."""
        while (room := self._limits.batch - len(self._rows)) > 0:
            request = self._begun or self._begin_next()
            if request is None:
                return
            if request.ticket.cancelled:
                request.waiting.clear()
            for _ in range(min(room, len(request.waiting))):
                self._rows.append(_Row(request, *request.waiting.popleft()))
            self._begun = request if request.waiting else None

    def _begin_next(self) -> _Request | None:
        """The first request of the queue that can be begun."""
        while True:
            with self._changed:
                if not self._queue:
                    return None
                ticket = self._queue.popleft()
            ticket.started = time.perf_counter()
            try:
                drafts = ticket.plan.drafts()
            except Exception:
                self._fail(ticket)
                continue
            return _Request(ticket, deque(enumerate(drafts)), len(drafts))

    def _step(self, served: ServedModel, rows: list[_Row]) -> list[_Row]:
        """One network call; the rows that go on."""
        top = max(row.request.ticket.candidates for row in rows)
        try:
            results = advance(served.model.network, served.process, [row.draft for row in rows], top)
        except Exception:
            return self._step_apart(served, rows)
        self._metrics.add("multimdm_network_calls_total")
        self._metrics.add("multimdm_network_rows_total", len(rows))
        going = []
        for row, (draft, finished, best) in zip(rows, results, strict=True):
            ticket = row.request.ticket
            if ticket.watched:
                ticket.tell(Stepped.of(row.index, row.draft, draft, best if ticket.candidates else None))
            if finished:
                self._finish(row, draft)
            else:
                going.append(_Row(row.request, row.index, draft))
        return going

    def _step_apart(self, served: ServedModel, rows: list[_Row]) -> list[_Row]:
        """A network call failed: each request by itself, so that only the one at fault is lost."""
        requests: dict[_Request, list[_Row]] = {}
        for row in rows:
            requests.setdefault(row.request, []).append(row)
        if len(requests) > 1:
            return [row for own in requests.values() for row in self._step(served, own)]
        self._fail(rows[0].request.ticket)
        return []

    def _finish(self, row: _Row, draft: Draft) -> None:
        """Tell the end of a sequence."""
        request, ticket = row.request, row.request.ticket
        request.left -= 1
        self._metrics.add("multimdm_sequences_total")
        self._metrics.add("multimdm_tokens_total", int(draft.free.sum()))
        if request.left == 0:
            ticket.ended = time.perf_counter()
            took = ticket.ended - (ticket.started or ticket.submitted)
            self._usual_seconds = _MEMORY * self._usual_seconds + (1 - _MEMORY) * took
            self._metrics.observe_seconds(ticket.ended - ticket.submitted)
        ticket.tell(Finished(row.index, draft.x.tolist(), draft.k))

    def _fail_all(self) -> None:
        """A fault outside of any network call: what is under way is lost, but its clients hear of it."""
        requests = {row.request for row in self._rows} | ({self._begun} if self._begun else set())
        self._rows, self._begun = [], None
        for request in requests:
            if request.ticket.ended is None:
                self._fail(request.ticket)

    def _fail(self, ticket: Ticket) -> None:
        """A fault of ours; the log has it, the client learns that it was one."""
        _LOG.exception("a request failed")
        self._metrics.add("multimdm_failed_total")
        ticket.ended = time.perf_counter()
        ticket.tell(Failed("something went wrong inside the server; its log tells more"))
        ticket.cancelled = True  # its other sequences are not worth making
