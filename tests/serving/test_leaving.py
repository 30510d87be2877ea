"""Clients that leave, or do not read: no work stays behind."""

import asyncio
import json
import time
from unittest.mock import patch

import pytest

from multimdm.serving.app import create_app
from multimdm.serving.engine import Engine
from multimdm.serving.limits import Limits
from support.live_server import SLOW, read, serving, wait_until


@pytest.mark.parametrize("stream", [False, True])
def test_work_ends_when_the_client_leaves(served_models, begin, slow_network, stream):
    with serving(served_models) as live:
        connection = begin(live, {**SLOW, "stream": stream})
        wait_until(lambda: live.running == 4)
        connection.close()
        wait_until(lambda: live.running == 0)
        assert live.service.metrics.value("multimdm_cancelled_total") == 1
        assert live.service.metrics.value("multimdm_sequences_total") == 0


def test_who_leaves_the_queue_is_forgotten(served_models, begin, slow_network):
    with serving(served_models, Limits(batch=1)) as live:
        first, second = begin(live, {**SLOW, "n": 1, "steps": 40}), begin(live, {**SLOW, "n": 1})
        wait_until(lambda: live.waiting == 1)
        second.close()
        assert read(first)[0] == 200
        wait_until(lambda: live.waiting == 0 and live.running == 0)
        assert live.service.metrics.value("multimdm_sequences_total") == 1


def test_who_leaves_the_queue_makes_room(served_models, begin, slow_network):
    with serving(served_models, Limits(batch=1, queue=2)) as live:
        first = begin(live, {**SLOW, "n": 1})
        wait_until(lambda: live.running == 1)
        for stream in (False, True):
            begin(live, {**SLOW, "n": 1, "stream": stream})
        wait_until(lambda: live.waiting == 2)
        assert live.post("/v1/completions", {"prompt": "Lily"}).status == 429
        for connection in begin.opened[1:]:
            connection.close()
        wait_until(lambda: live.waiting == 0)
        assert live.running == 1  # the one before them has not come to its end
        last = begin(live, {"prompt": "Lily", "steps": 1})
        wait_until(lambda: live.waiting == 1)
        first.close()
        assert read(last)[0] == 200


def ask_by_hand(app, path: str, body: dict, leave: bool, send) -> None:
    """A request without a socket, to an engine that never starts: it waits for ever. The client may leave at once."""
    messages = [{"type": "http.request", "body": json.dumps(body).encode()}, {"type": "http.disconnect"}]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "asgi": {"spec_version": "2.3"}}

    async def receive():
        if len(messages) == 1 and not leave:
            await asyncio.sleep(60)
        return messages.pop(0)

    async def ask():
        with patch.object(Engine, "alive", True):
            await app({**scope, "headers": [(b"content-type", b"application/json")]}, receive, send)

    asyncio.run(ask())
    metrics = app.state.service.metrics
    assert metrics.value("multimdm_cancelled_total") == 1
    assert metrics.value("multimdm_queue_requests") == 0


STREAMS = [("/v1/completions", {"prompt": "Lily", "stream": True}), ("/v1/trace", {"prompt": "Lily"})]


@pytest.mark.parametrize(("path", "body"), STREAMS)
def test_a_stream_that_no_one_began_to_read(served_models, path, body):
    """The client has left when the answer is to begin: no event is asked for, and no work may stay."""

    async def send(message):
        pass

    ask_by_hand(create_app(served_models), path, body, True, send)


@pytest.mark.parametrize(("path", "body"), STREAMS)
def test_a_stream_that_no_one_goes_on_reading(served_models, path, body):
    async def send(message):
        await asyncio.sleep(60)

    begun = time.monotonic()
    ask_by_hand(create_app(served_models, Limits(body_seconds=0.2)), path, body, False, send)
    assert time.monotonic() - begun < 10
