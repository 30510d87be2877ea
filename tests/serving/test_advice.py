"""Requests that leave something open get what the model advises; /v1/models tells what that is."""

import pytest

from multimdm.samplers import SamplingAdvice
from multimdm.serving.catalog import ServedModel
from multimdm.serving.limits import Limits
from support.live_server import serving
from support.tiny_models import shown_tales_model, tales_model

ADVICE = SamplingAdvice(order="rewrite", temperature=0, steps=6)


@pytest.fixture(scope="module")
def models():
    return {"advised": shown_tales_model(ADVICE), "plain": tales_model()}


@pytest.fixture(scope="module")
def live(models):
    with serving({name: ServedModel.of(name, model) for name, model in models.items()}, Limits(max_steps=12)) as server:
        yield server


def test_models_tell_what_is_usual_for_them(live):
    advised, plain = (one["multimdm"] for one in live.send("GET", "/v1/models").data["data"])
    assert advised["defaults"] == {"steps": 6, "sampler": "rewrite", "temperature": 0}
    assert plain["defaults"] == {"steps": 4, "sampler": "ancestral", "temperature": 1}
    assert advised["samplers"] == ["ancestral", "confidence", "left_to_right", "rewrite"]
    assert plain["samplers"] == ["ancestral", "confidence", "left_to_right"]


SAID = [
    {},
    {"temperature": 1.0},
    {"steps": 3},
    {"sampler": "left_to_right"},
    {"sampler": "ancestral", "steps": 2, "temperature": 0.5},
    {"top_p": 0.9},
    {"top_k": 5, "temperature": 0.7},
    {"sampler": "ancestral", "temperature": 1, "greedy_last": True, "steps": 3},
    {"temperature": 1, "grid": [1, 0.3, 0]},
    {"sampler": "confidence", "temperature": 1, "block_length": 12, "threshold": 0.3, "remasking": "low_certainty"},
    {"temperature": 1, "exclude_tokens": [1, 2, 3]},
]


@pytest.mark.parametrize("said", SAID, ids=str)
def test_requests_are_answered_as_the_library_would(live, models, said):
    reply = live.post("/v1/completions", {"prompt": "Lily", "seed": 5, "n": 2, **said})
    assert reply.status == 200, reply.body
    named = {("order" if name == "sampler" else name): value for name, value in said.items()}
    named = {name: tuple(value) if isinstance(value, list) else value for name, value in named.items()}
    own = models["advised"].complete("Lily", 2, seed=5, **named)
    for choice, whole in zip(reply.data["choices"], own.texts, strict=True):
        assert whole.startswith(("Lily" + choice["text"]).strip())
    assert reply.data["multimdm"]["network_calls"] == own.nfe <= 6


def test_a_trace_of_rewriting(live, models):
    events = live.post("/v1/trace", {"prompt": "Lily", "length": 10, "seed": 1, "candidates": 2}).events()
    (_, start), *steps, (_, done) = events
    assert (start["sampler"], start["temperature"], start["steps"]) == ("rewrite", 0, 6)
    assert len(steps) == done["network_calls"] <= 6
    assert [data["t"] for _, data in steps] == [1.0, *[0.0] * (len(steps) - 1)]
    for number, (_, data) in enumerate(steps):
        given, *made = data["tokens"]
        assert "candidates" not in given
        assert all(len(token["candidates"]) == 2 and ("mask" in token) == (number == 0) for token in made)
    assert done["text"] == models["advised"].complete("Lily", length=10, seed=1).texts[0]


@pytest.mark.parametrize("sampler", ["rewrite", "left_to_right"])
def test_a_stream_adds_up_to_the_answer(live, sampler):
    asked = {"prompt": "Lily", "seed": 3, "sampler": sampler, "temperature": 1}
    whole = live.post("/v1/completions", asked).data["choices"][0]["text"]
    events = live.post("/v1/completions", {**asked, "stream": True}).events()
    pieces = [data["choices"][0]["text"] for _, data in events if isinstance(data, dict)]
    assert "".join(pieces) == whole
    assert sum(map(bool, pieces)) == 1 if sampler == "rewrite" else sum(map(bool, pieces)) > 1


def test_what_a_model_does_not_allow_is_refused(live):
    reply = live.post("/v1/completions", {"model": "plain", "prompt": "Lily", "sampler": "rewrite"})
    assert reply.status == 400
    assert reply.message == (
        "sampler must be 'ancestral' or 'confidence' or 'left_to_right' for plain, which is not shown its noise"
    )


def test_advice_beyond_the_limits_is_cut():
    served = ServedModel.of("advised", shown_tales_model(SamplingAdvice(steps=50)))
    assert served.as_data(Limits(max_steps=7))["multimdm"]["defaults"]["steps"] == 7
