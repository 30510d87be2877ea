"""Two small models behind one server for all tests that only ask, and what makes a server busy."""

import http.client
import json
import time
from collections.abc import Iterator

import pytest

from multimdm.serving.catalog import ServedModel
from support.live_server import Live, serving
from support.tiny_models import tales_model


def tiny_served_models() -> dict[str, ServedModel]:
    return {
        name: ServedModel.of(name, tales_model(masks, seed))
        for seed, (name, masks) in enumerate([("many", 3), ("one", 1)])
    }


@pytest.fixture(scope="session")
def served_models() -> dict[str, ServedModel]:
    return tiny_served_models()


@pytest.fixture(scope="session")
def live(served_models) -> Iterator[Live]:
    with serving(served_models) as server:
        yield server


@pytest.fixture
def slow_network(served_models, monkeypatch):
    """Every network call takes as long as that of a larger model."""
    network = served_models["many"].model.network
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

    send.opened = opened
    yield send
    for connection in opened:
        connection.close()
