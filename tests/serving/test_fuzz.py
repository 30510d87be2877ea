"""Random and malformed requests never give a 500, and never stop the server."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.live_server import Live

# beartype picks the items that it checks with `random`, in the server's threads; hypothesis takes it for ours.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")

FIELDS = [
    *(
        "model",
        "prompt",
        "suffix",
        "messages",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "n",
        "seed",
    ),
    *("stop", "stream", "stream_options", "steps", "sampler", "length", "candidates", "logprobs", "echo", "user"),
]
PATHS = ["/v1/completions", "/v1/chat/completions", "/v1/trace"]
WORDS = st.sampled_from(["Lily", "Tom", "[MASK]", "[END]", "[PAD]", "a", "cat", ".", "xyzzy", "<b>", "\x00", "é"])
ANY_TEXT = st.one_of(st.text(max_size=20), st.lists(WORDS, max_size=12).map(" ".join))
NUMBERS = st.one_of(st.integers(-3, 60), st.integers(), st.floats(), st.booleans())
JSON = st.recursive(
    st.one_of(st.none(), NUMBERS, ANY_TEXT),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NEARLY = {
    "model": st.sampled_from(["many", "one"]),
    "prompt": st.one_of(ANY_TEXT, st.lists(ANY_TEXT, max_size=3), st.lists(st.integers(-1, 405), max_size=5)),
    "suffix": ANY_TEXT,
    "messages": st.lists(
        st.fixed_dictionaries({"role": st.sampled_from(["user", "system", "tool"]), "content": ANY_TEXT}), max_size=3
    ),
    "max_tokens": st.integers(0, 49),
    "temperature": st.one_of(st.floats(0, 3), st.just(1e-300)),
    "top_p": st.floats(0, 1),
    "n": st.integers(0, 5),
    "seed": st.integers(0, 2**63),
    "stop": st.one_of(ANY_TEXT, st.lists(ANY_TEXT, max_size=5)),
    "stream": st.booleans(),
    "steps": st.integers(0, 9),
    "sampler": st.sampled_from(["ancestral", "confidence", "left_to_right", "rewrite"]),
    "length": st.integers(0, 50),
    "candidates": st.integers(-1, 11),
}
"""Fields that are mostly right, so that much of what is sent is served."""


def check(live: Live, path: str, body: bytes) -> None:
    reply = live.send("POST", path, body)
    assert reply.status in (200, 400, 404)
    if reply.status != 200:
        error = reply.data["error"]
        assert error["message"]
        assert error["type"] in ("invalid_request_error", "not_found_error")
    assert b"server_error" not in reply.body


@given(path=st.sampled_from(PATHS), body=st.binary(max_size=60))
def test_bytes(live, path, body):
    check(live, path, body)


@given(
    path=st.sampled_from(PATHS), body=st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=6), JSON, max_size=5)
)
@settings(max_examples=100)
def test_json(live, path, body):
    check(live, path, json.dumps(body).encode())


@given(path=st.sampled_from(PATHS), body=st.fixed_dictionaries({}, optional=NEARLY))
@settings(max_examples=80)
def test_nearly_right(live, path, body):
    if path == "/v1/trace":
        body = {
            name: value
            for name, value in body.items()
            if name not in ("suffix", "messages", "max_tokens", "n", "stop", "stream")
        }
    if path == "/v1/chat/completions":
        body = {"messages": [{"role": "user", "content": "Lily"}], **body}
        body = {name: value for name, value in body.items() if name not in ("prompt", "suffix", "length", "candidates")}
    if path == "/v1/completions":
        body = {name: value for name, value in body.items() if name not in ("messages", "length", "candidates")}
    check(live, path, json.dumps(body).encode())


@given(path=st.text(max_size=30).map(lambda text: "/" + text.encode("ascii", "ignore").decode()))
def test_paths(live, path):
    clean = "".join(character for character in path if character > " " and character != "\x7f")
    assert live.send("GET", clean).status in (200, 400, 404)


def test_the_server_still_lives(live):
    assert live.send("GET", "/healthz").status == 200
    assert live.service.metrics.value("multimdm_failed_total") == 0
