"""Connections that ask for nothing, or never finish asking."""

import json
import socket
import time
from contextlib import ExitStack

import pytest

from multimdm.serving.limits import Limits
from support.live_server import SLOW, read, serving, wait_until


@pytest.fixture
def connect():
    """Opens connections to a server, and closes them in the end."""
    with ExitStack() as stack:
        yield lambda live: stack.enter_context(socket.create_connection(("127.0.0.1", live.port), timeout=10))


def closed(connection: socket.socket) -> bool:
    """Whether the server has let it go."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
    finally:
        connection.setblocking(True)
        connection.settimeout(10)


def answers(connection: socket.socket) -> bool:
    """Whether a request on it is answered."""
    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = b""
    while not answer.endswith(b'{"status":"ok"}'):
        piece = connection.recv(65_536)
        if not piece:
            return False
        answer += piece
    return answer.startswith(b"HTTP/1.1 200")


def test_the_one_that_is_idle_for_longest_gives_way(served_models, connect):
    with serving(served_models, Limits(connections=4)) as live:
        held = [connect(live) for _ in range(4)]
        for connection in held:
            assert answers(connection)
        assert answers(held[0])  # it is now the one that was busy last
        newest = connect(live)
        assert answers(newest)
        wait_until(lambda: closed(held[1]))
        assert not any(closed(connection) for connection in (held[0], held[2], held[3], newest))


def test_a_flood_of_idle_connections_keeps_nobody_out(served_models, connect):
    with serving(served_models, Limits(connections=8)) as live:
        flood = [connect(live) for _ in range(100)]
        for _ in range(3):
            assert live.post("/v1/completions", {"prompt": "Lily", "steps": 1}).status == 200
        wait_until(lambda: sum(not closed(connection) for connection in flood) <= 8)


def test_requests_under_way_are_not_ended_for_others(served_models, begin, connect, slow_network):
    with serving(served_models, Limits(connections=2)) as live:
        working = [begin(live, {**SLOW, "n": 1, "steps": 20}) for _ in range(2)]
        wait_until(lambda: live.running == 2)
        refused = connect(live)
        head, _, body = refused.recv(65_536).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503")
        assert b"Retry-After: 1" in head
        assert json.loads(body)["error"]["message"] == "all connections are in use; try again in 1 s"
        assert [read(connection)[0] for connection in working] == [200, 200]
        assert live.send("GET", "/healthz").status == 200


def test_a_head_has_a_time_to_arrive_however_it_comes(served_models, connect):
    """Silence from the beginning, and a head that grows by a byte again and again."""
    with serving(served_models, Limits(body_seconds=0.5)) as live:
        silent, slow = connect(live), connect(live)
        start = time.monotonic()
        while not closed(slow):
            assert time.monotonic() - start < 10
            try:
                slow.sendall(b"G")
            except OSError:
                break
            time.sleep(0.05)
        assert 0.4 < time.monotonic() - start < 5
        wait_until(lambda: closed(silent))
        usual = connect(live)
        assert answers(usual)
        time.sleep(0.8)
        assert answers(usual)  # between requests it may rest for longer
