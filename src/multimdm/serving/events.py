"""Server-sent events."""

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi.responses import StreamingResponse

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


def stream(events: AsyncIterator[str]) -> StreamingResponse:
    """An answer that is sent while it is made; nothing on the way may keep or delay it."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)
