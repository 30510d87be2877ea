"""Too much work, clients that leave, and a server that is asked to stop."""

import http.client
import json
import threading
import time

import pytest

from multimdm.serving.limits import Limits
from support.live_server import Live, serving, wait_until

SLOW = {"prompt": "Lily", "steps": 256, "n": 4, "sampler": "confidence", "max_tokens": 47}


@pytest.fixture
def slow_network(offers, monkeypatch):
    """Every network call takes as long as that of a larger model."""
    network = offers["many"].model.network
    usual = type(network).forward

    def forward(*arguments, **named):
        time.sleep(0.02)
        return usual(*arguments, **named)

    monkeypatch.setattr(type(network), "forward", forward)


@pytest.fixture
def begin():
    """Sends requests without waiting for answers; closes their connections in the end."""
    opened = []

    def send(live: Live, body: dict) -> http.client.HTTPConnection:
        opened.append(http.client.HTTPConnection("127.0.0.1", live.port, timeout=60))
        opened[-1].request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        return opened[-1]

    yield send
    for connection in opened:
        connection.close()


def read(connection: http.client.HTTPConnection) -> tuple[int, bytes]:
    """Status and body of the answer."""
    with connection.getresponse() as answer:
        return answer.status, answer.read()


def running(live: Live) -> int:
    return live.service.metrics.gauges["multimdm_running_sequences"][1]()


def waiting(live: Live) -> int:
    return live.service.metrics.gauges["multimdm_queue_requests"][1]()


def test_a_full_queue_says_when_to_come_back(offers, begin, slow_network):
    with serving(offers, Limits(batch=2, queue=2, max_n=4)) as live:
        first = begin(live, SLOW)
        wait_until(lambda: running(live) == 2)
        others = [begin(live, {**SLOW, "n": 1, "steps": 1}) for _ in range(2)]
        wait_until(lambda: waiting(live) == 2)
        reply = live.post("/v1/completions", {"prompt": "Lily"})
        assert reply.status == 429
        assert int(reply.headers["retry-after"]) >= 1
        assert reply.data["error"]["code"] == "queue_full"
        assert live.post("/v1/trace", {"prompt": "Lily"}).status == 429
        assert live.service.metrics.value("multimdm_rejected_total") == 2
        first.close()  # whoever waits behind it is served
        assert [read(connection)[0] for connection in others] == [200, 200]
        assert live.post("/v1/completions", {"prompt": "Lily"}).status == 200


@pytest.mark.parametrize("stream", [False, True])
def test_work_ends_when_the_client_leaves(offers, begin, slow_network, stream):
    with serving(offers) as live:
        connection = begin(live, {**SLOW, "stream": stream})
        wait_until(lambda: running(live) == 4)
        connection.close()
        wait_until(lambda: running(live) == 0)
        assert live.service.metrics.value("multimdm_cancelled_total") == 1
        assert live.service.metrics.value("multimdm_sequences_total") == 0


def test_who_leaves_the_queue_is_forgotten(offers, begin, slow_network):
    with serving(offers, Limits(batch=1)) as live:
        first, second = begin(live, {**SLOW, "n": 1, "steps": 40}), begin(live, {**SLOW, "n": 1})
        wait_until(lambda: waiting(live) == 1)
        second.close()
        assert read(first)[0] == 200
        wait_until(lambda: waiting(live) == 0 and running(live) == 0)
        assert live.service.metrics.value("multimdm_sequences_total") == 1


def test_shutting_down_finishes_what_is_running(offers, begin, slow_network):
    with serving(offers, Limits(batch=1)) as live:
        asked = {**SLOW, "n": 1, "steps": 30}
        connections = [begin(live, asked), begin(live, {**asked, "stream": True})]
        wait_until(lambda: running(live) == 1 and waiting(live) == 1)
        live.stop()
        answers = [read(connection) for connection in connections]
        assert [status for status, _ in answers] == [200, 200]
        assert json.loads(answers[0][1])["choices"][0]["text"]
        assert answers[1][1].endswith(b"data: [DONE]\n\n")


def test_a_fault_inside_is_told_and_the_server_goes_on(offers, monkeypatch):
    network = offers["many"].model.network

    def broken(*arguments, **named):
        raise RuntimeError("no memory, say")

    with serving(offers) as live:
        with monkeypatch.context() as patch:
            patch.setattr(type(network), "forward", broken)
            reply = live.post("/v1/completions", {"prompt": "Lily", "n": 3})
            assert reply.status == 500
            assert "no memory" not in reply.message
            streamed = live.post("/v1/completions", {"prompt": "Lily", "stream": True}).events()
            assert streamed[-1][1]["error"]["type"] == "server_error"
            assert live.post("/v1/trace", {"prompt": "Lily"}).events()[-1][0] == "error"
        assert live.post("/v1/completions", {"prompt": "Lily"}).status == 200
        assert live.service.metrics.value("multimdm_failed_total") == 3


def test_slow_and_large_bodies(offers):
    with serving(offers, Limits(max_body=1000, body_seconds=0.3)) as live:
        assert live.post("/v1/completions", {"prompt": "Lily " * 300}).status == 413
        connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=10)
        pieces = (b"x" * 100 for _ in range(50))  # without a length, in chunks
        connection.request("POST", "/v1/completions", pieces, {"Content-Type": "application/json"}, encode_chunked=True)
        assert connection.getresponse().status == 413
        connection.close()
        connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=10)
        connection.putrequest("POST", "/v1/completions")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", "50")
        connection.endheaders(b'{"prompt"')
        assert connection.getresponse().status == 408
        connection.close()


def test_threads_end_with_the_server(offers):
    with serving(offers) as live:
        live.post("/v1/completions", {"prompt": "Lily", "steps": 1})
        assert any(thread.name == "multimdm-engine" for thread in threading.enumerate())
    # The session's own server, if it runs, has one too.
    wait_until(lambda: sum(thread.name == "multimdm-engine" for thread in threading.enumerate()) <= 1)
