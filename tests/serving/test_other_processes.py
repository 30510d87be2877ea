"""A uniform-state model is served like others, except that its tokens are settled only in the end."""

import pytest

from multimdm.data.tales import tales_tokenizer
from multimdm.pipeline import Model
from multimdm.process import Hybrid, Uniform
from multimdm.serving.catalog import ServedModel
from support.live_server import serving
from support.tiny_models import TALES, tiny_dit

V = TALES.vocab_size


@pytest.fixture(scope="module")
def duo():
    return Model(tiny_dit(V, 0, 48), Uniform(V), tales_tokenizer(TALES))


@pytest.fixture(scope="module")
def live(duo):
    with serving({"duo": ServedModel.of("duo", duo)}) as server:
        yield server


def test_completions(live, duo):
    reply = live.post("/v1/completions", {"prompt": "Lily raced", "seed": 3, "steps": 4, "max_tokens": 9})
    own = duo.complete("Lily raced", length=11, steps=4, seed=3).texts[0]
    assert own.startswith("Lily raced" + reply.data["choices"][0]["text"])


def test_a_stream_waits_for_the_end(live):
    asked = {"prompt": "Lily", "seed": 3, "steps": 6, "max_tokens": 9}
    whole = live.post("/v1/completions", asked).data["choices"][0]["text"]
    *chunks, done = (data for _, data in live.post("/v1/completions", {**asked, "stream": True}).events())
    assert [chunk["choices"][0]["text"] for chunk in chunks] == [whole, ""]
    assert done == "[DONE]"


def test_traces_know_no_masks(live):
    events = live.post("/v1/trace", {"prompt": "Lily", "length": 8, "steps": 3}).events()
    assert all("mask" not in token for _, data in events[1:-1] for token in data["tokens"])
    kinds = events[-1][1]["kinds"]
    assert {kind for row in kinds for kind in row} <= {"clean", "other"}
    assert set(kinds[-1]) == {"clean"}


def test_confidence_needs_masks(live):
    reply = live.post("/v1/completions", {"prompt": "Lily", "sampler": "confidence"})
    assert reply.status == 400
    assert "which has no masks" in reply.message


def test_candi_is_refused():
    model = Model(tiny_dit(V, 1, 48), Hybrid(V), tales_tokenizer(TALES))
    with pytest.raises(ValueError, match="candi is a CANDI model"):
        ServedModel.of("candi", model)
