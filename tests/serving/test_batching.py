"""Requests that arrive together share network calls, and each gets the answer that it would have got alone."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from multimdm.serving.limits import Limits
from support.live_server import serving

PROMPTS = ["", "Lily raced to the harbor", "Tom", "Lily found a"]


def body(number: int) -> dict:
    """Mixed lengths, steps, samplers, models and temperatures."""
    return {
        "model": ("many", "one")[number % 2],
        "prompt": PROMPTS[number % 4],
        "max_tokens": 5 + 3 * (number % 9),
        "steps": 1 + number % 7,
        "sampler": ("ancestral", "confidence")[number % 3 == 0],
        "temperature": (1.0, 0.5, 0)[number % 5 % 3],
        "n": 1 + number % 2,
        "seed": number,
    }


def texts(reply) -> list[str]:
    assert reply.status == 200, reply.body
    return [choice["text"] for choice in reply.data["choices"]]


def test_together_is_as_alone(served_models):
    bodies = [body(number) for number in range(48)]
    with serving(served_models, Limits(batch=16)) as live:
        alone = [texts(live.post("/v1/completions", one)) for one in bodies]
        calls, rows = (live.service.metrics.value(f"multimdm_network_{what}_total") for what in ("calls", "rows"))
        with ThreadPoolExecutor(24) as pool:
            together = list(pool.map(lambda one: texts(live.post("/v1/completions", one)), bodies))
        metrics = live.service.metrics
        assert metrics.value("multimdm_network_rows_total") == 2 * rows
        assert metrics.value("multimdm_network_calls_total") - calls < 0.7 * calls
    # Sums in another order may round differently and, very rarely, turn a draw; nothing may be mixed up.
    assert sum(a != b for a, b in zip(alone, together, strict=True)) <= 1


def test_alone_is_as_in_the_library(served_models):
    with serving(served_models) as live:
        for number in range(12):
            asked = body(number)
            model = served_models[asked["model"]].model
            own = model.complete(
                asked["prompt"],
                num=asked["n"],
                length=len(served_models["many"].tokenizer.encode(asked["prompt"])) + asked["max_tokens"],
                steps=asked["steps"],
                temperature=asked["temperature"],
                order=asked["sampler"],
                seed=asked["seed"],
            )
            for text, whole in zip(texts(live.post("/v1/completions", asked)), own.texts, strict=True):
                assert whole.startswith((asked["prompt"] + text).strip())


def test_traces_of_different_lengths_together(served_models):
    bodies = [
        {"prompt": "Lily", "length": 5 + 3 * number, "steps": 12, "seed": number, "candidates": 2}
        for number in range(12)
    ]

    def told(live, body) -> list:
        *steps, (_, done) = live.post("/v1/trace", body).events()
        assert [name for name, _ in steps] == ["start"] + ["step"] * done["network_calls"]
        return [*([token.get("mask") for token in data["tokens"]] for _, data in steps[1:]), done["text"]]

    with serving(served_models) as live, ThreadPoolExecutor(12) as pool:
        alone = [told(live, body) for body in bodies]
        together = list(pool.map(lambda body: told(live, body), bodies))
        calls, rows = (live.service.metrics.value(f"multimdm_network_{what}_total") for what in ("calls", "rows"))
    assert calls < rows
    assert sum(a != b for a, b in zip(alone, together, strict=True)) <= 1  # as above


@pytest.mark.parametrize("batch", [1, 3])
def test_more_sequences_than_room(served_models, batch):
    asked = {"prompt": "Lily", "n": 7, "seed": 1, "steps": 3, "max_tokens": 6}
    with serving(served_models) as wide, serving(served_models, Limits(batch=batch)) as narrow:
        assert texts(wide.post("/v1/completions", asked)) == texts(narrow.post("/v1/completions", asked))
