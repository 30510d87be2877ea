"""A short form of `benchmarks/serving.py --soak`; and that it sees what is wrong."""

import asyncio
from itertools import islice

import pytest

from multimdm.serving.plans import Slot
from multimdm.serving.texts import answer
from support.benchmark_scripts import benchmark
from support.live_server import serving, wait_until

NUMBERS = range(6)


def request(number: int) -> dict:
    return {"prompt": "", "max_tokens": 12 + number, "steps": 1 + number, "seed": number}


@pytest.fixture(scope="module")
def crowd(served_models):
    """Clients that know the library's answers."""
    served = served_models["many"]
    expected = {}
    for number in NUMBERS:
        asked = request(number)
        ids = served.model.sample(num=1, length=asked["max_tokens"], steps=asked["steps"], seed=number).ids[0].tolist()
        expected[number] = answer(served, Slot((None,) * len(ids), slice(0, len(ids))), ids).text
    bodies = benchmark("soak_bodies")
    corpus = bodies.by_hypothesis(100, seed=0)
    assert len(corpus) > 50

    def made(port: int, **changes):
        settings = {"port": port, "expected": expected, "request": request, "num_bodies": 60, "pace": 0.3}
        return benchmark("soak_clients").Crowd(bodies=bodies.replayed(corpus, seed=0), **{**settings, **changes})

    return made


@pytest.fixture
def short(monkeypatch):
    """One client of each kind, but three honest ones."""
    clients = benchmark("soak_clients")
    monkeypatch.setattr(clients, "CROWD", {**dict.fromkeys(clients.CROWD, 1), "honest": 3})
    monkeypatch.setattr(clients, "SETTLING", 0.1)


def test_no_answer_is_lost_or_mixed(served_models, crowd, short):
    with serving(served_models) as live:
        clients, watched = crowd(live.port), []
        asyncio.run(clients.soak(8.0, watched.append))
        account = clients.account
        wait_until(lambda: live.running == 0)
        assert live.service.metrics.value("multimdm_failed_total") == 0
    assert account.wrong == []
    assert account.compared > 5
    assert account.requests["malformed"] == 60
    assert all(account.latencies.values())
    assert {kind for kind, _ in account.statuses} >= {"honest", "stream", "malformed"}
    assert all(account.requests[kind] > 0 for kind in ("honest", "stream", "slow", "vanish", "malformed", "idle"))
    assert len(watched) >= 2


def test_it_sees_answers_of_others(served_models, crowd, short):
    with serving(served_models) as live:
        clients = crowd(live.port, expected=dict.fromkeys(NUMBERS, "something else"))
        asyncio.run(clients.soak(1.5, lambda left: None))
    assert any("honest: request" in text and "another's answer" in text for text in clients.account.wrong)


def test_it_sees_faults(served_models, crowd, short, monkeypatch):
    def broken(*arguments, **named):
        raise RuntimeError("no memory, say")

    monkeypatch.setattr(type(served_models["many"].model.network), "forward", broken)
    with serving(served_models) as live:
        clients = crowd(live.port)
        asyncio.run(clients.soak(1.5, lambda left: None))
    assert any(text.startswith("honest: 500") for text in clients.account.wrong)
    assert any(text.startswith("stream: ") and "something went wrong" in text for text in clients.account.wrong)


def test_malformed_bodies_come_evenly():
    """In each time among others as many as in the one before; the last ends a little earlier."""
    seconds = benchmark("soak_clients")._mixed_seconds
    assert seconds(1785.0) == pytest.approx(29.95 * 45)
    assert seconds(105.0) == pytest.approx(1.95 * 45)
    assert seconds(45.0) == pytest.approx(0.95 * 45)
    assert seconds(20.0) == pytest.approx(19)


def test_a_corpus_is_sent_whole_then_changed():
    bodies = benchmark("soak_bodies")
    corpus = [bodies.Body("/v1/trace", content) for content in (b"", b"{}", b"[1]")]
    sent = list(islice(bodies.replayed(corpus, seed=0), 300))
    assert sorted(sent[:3]) == sorted(corpus)
    assert len(set(sent)) > 100
    assert {body.path for body in sent} == {"/v1/trace"}
    assert sent == list(islice(bodies.replayed(corpus, seed=0), 300))


def test_the_laws():
    """Each of them can be broken."""
    soak = benchmark("soak")
    account = soak.Account(latencies={"alone": [1.0] * 100, "mixed": [1.9] * 100})
    small, grown = soak.Size(100.0, 5, 7), soak.Size(120.0, 6, 8)

    def held(**changes) -> list[bool]:
        told = {"minutes": 1.0, "account": account, "before": small, "sizes": [small] * 3, "after": small, "log": ""}
        told["num_bodies"] = 0
        return [holds for _, _, holds in soak.Outcome(**{**told, **changes}).laws.values()]

    assert all(held())
    assert held(sizes=[small, small, grown]) == [True] * 5 + [False] * 3 + [True]
    assert held(num_bodies=1) == [True, False, *[True] * 7]
    assert held(after=grown) == [True] * 8 + [False]
    assert held(log="Traceback (most recent call last)").count(False) == 1
    slow = soak.Account(latencies={"alone": [1.0] * 100, "mixed": [1.9] * 90 + [2.1] * 10}, wrong=["lost"])
    assert held(account=slow) == [False, True, True, True, False, *[True] * 4]
