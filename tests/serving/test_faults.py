"""Faults inside the server: told to those whom they hit, and to no one else; never its end."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from multimdm.serving.engine import Engine
from support.live_server import serving


@pytest.fixture
def network(served_models):
    return type(served_models["many"].model.network)


def test_a_fault_is_told_and_the_server_goes_on(served_models, network, monkeypatch):
    def broken(*arguments, **named):
        raise RuntimeError("no memory, say")

    with serving(served_models) as live:
        with monkeypatch.context() as patch:
            patch.setattr(network, "forward", broken)
            reply = live.post("/v1/completions", {"prompt": "Lily", "n": 3})
            assert reply.status == 500
            assert "no memory" not in reply.message
            streamed = live.post("/v1/completions", {"prompt": "Lily", "stream": True}).events()
            assert streamed[-1][1]["error"]["type"] == "server_error"
            assert live.post("/v1/trace", {"prompt": "Lily"}).events()[-1][0] == "error"
        assert live.post("/v1/completions", {"prompt": "Lily"}).status == 200
        assert live.service.metrics.value("multimdm_failed_total") == 3


def test_others_in_the_same_call_do_not_fail(served_models, network, monkeypatch):
    usual, poison = network.forward, served_models["many"].tokenizer.encode("Tom")[0]

    def sometimes(self, x, *arguments, **named):
        if (x[:, 0] == poison).any():
            raise RuntimeError("this one")
        return usual(self, x, *arguments, **named)

    def ask(number: int) -> int:
        prompt = "Tom" if number % 4 == 0 else "Lily"
        return live.post("/v1/completions", {"prompt": prompt, "n": 2, "steps": 20, "seed": number}).status

    monkeypatch.setattr(network, "forward", sometimes)
    with serving(served_models) as live, ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, range(16))) == [500, 200, 200, 200] * 4


@pytest.mark.parametrize("place", ["_finish", "_admit"])
def test_a_fault_of_the_engine_itself(served_models, monkeypatch, place):
    """Outside of any network call: the thread must outlive it, for no one else would answer."""
    usual, broken = getattr(Engine, place), iter([True])

    def once(self, *arguments):
        if place == "_admit":
            usual(self)
        if next(broken, False):
            raise RuntimeError("a slip")
        return None if place == "_admit" else usual(self, *arguments)

    monkeypatch.setattr(Engine, place, once)
    with serving(served_models) as live:
        assert live.post("/v1/completions", {"prompt": "Lily", "n": 2, "steps": 1}).status == 500
        assert live.post("/v1/completions", {"prompt": "Lily", "n": 2, "steps": 1}).status == 200
        assert live.send("GET", "/healthz").status == 200


def test_a_dead_engine_is_no_health(served_models):
    with serving(served_models) as live:
        live.service.engine.close()
        assert live.send("GET", "/healthz").status == 503
        reply = live.post("/v1/completions", {"prompt": "Lily"})
        assert reply.status == 503
        assert "retry-after" in reply.headers
