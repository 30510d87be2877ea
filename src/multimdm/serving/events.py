"""Server-sent events."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from multimdm.serving.errors import ApiError

DONE = "data: [DONE]\n\n"
"""How OpenAI's streams end."""


def event(data: Any, name: str | None = None) -> str:
    """One event; JSON has no line breaks, so one line holds it."""
    head = f"event: {name}\n" if name is not None else ""
    return f"{head}data: {json.dumps(data, allow_nan=False)}\n\n"


def failure(message: str, name: str | None = None) -> str:
    """An error that came when the stream had begun."""
    return event(ApiError(500, message).as_data(), name)


class _Stream(StreamingResponse):
    """A stream that says when it is over.

    The events cannot say it themselves: if the client left before the first of them, they are never begun.
    """

    over: Callable[[], None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.over()


def stream(events: AsyncIterator[str], over: Callable[[], None]) -> StreamingResponse:
    """An answer that is sent while it is made, and what to do when it was sent or its client left."""
    # Nothing on the way may keep or delay it.
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    response = _Stream(events, media_type="text/event-stream", headers=headers)
    response.over = over
    return response
