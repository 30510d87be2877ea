"""What is refused, and how it is said; what every server tells of itself."""

import socket
from importlib.resources import files
from pathlib import Path

import pytest

from multimdm.data.tokenizer import Tokenizer
from support.live_server import serving

BAD = [
    ({"steps": 0}, "steps", "steps must be from 1 to 256; got 0"),
    ({"steps": 257}, "steps", "got 257"),
    ({"steps": 4.5}, "steps", "integer"),
    ({"steps": True}, "steps", "integer"),
    ({"n": 17}, "n", "n must be from 1 to 16; got 17"),
    ({"n": 9, "prompt": ["Lily", "Tom"]}, "n", "at most 16; got 18"),
    ({"max_tokens": 48}, "max_tokens", "max_tokens must be from 1 to 47; got 48"),
    ({"max_tokens": 0}, "max_tokens", "got 0"),
    ({"temperature": -1}, "temperature", "temperature must be 0"),
    ({"temperature": 1e-9}, "temperature", "temperature must be 0"),
    ({"top_p": 0}, "top_p", "top_p must lie in (0, 1]"),
    ({"seed": -1}, "seed", "seed must be from 0"),
    ({"sampler": "beam"}, "sampler", "must be one of ancestral, confidence, left_to_right, rewrite; got 'beam'"),
    ({"top_k": 0}, "top_k", "top_k must be an integer of at least 1, or left out; got 0"),
    ({"exclude_tokens": [404]}, "exclude_tokens", "exclude_tokens must be ids of tokens, 0..403; got [404]"),
    ({"exclude_tokens": [-1]}, "exclude_tokens", "exclude_tokens must be ids of at least 0; got [-1]"),
    ({"grid": [1, 0.5]}, "grid", "grid must fall from 1 to 0"),
    ({"grid": [1 - i / 257 for i in range(257)] + [0]}, "grid", "grid must have at most 257 times; got 258"),
    ({"block_length": 4}, "block_length", "block_length needs sampler='confidence'; got 4 without it"),
    ({"sampler": "confidence", "block_length": 4, "steps": 2}, "steps", "at least the number of blocks, 12; got 2"),
    ({"sampler": "confidence", "guidance": 1}, "guidance", "guidance must be 0 where sequences share network calls"),
    ({"corrector": 0.1}, "corrector", "corrector must be 0 where sequences share network calls"),
    ({"stop": ["a"] * 5}, "stop", "at most 4"),
    ({"stop": ""}, "stop", "must not be empty"),
    ({"prompt": []}, "prompt", "empty list"),
    ({"prompt": [0, 404]}, "prompt", "ids are 0 to 403; got 404"),
    ({"prompt": "Lily " * 48}, "prompt", "leave room in the 48 tokens"),
    ({"prompt": {"text": "Lily"}}, "prompt", "prompt: Input should be a valid string; got a dict"),
    ({"top_p": "high"}, "top_p", "got 'high'"),
    ({"echo": True}, "echo", "leave it out"),
    ({"tools": [{}]}, "tools", "leave it out"),
    ({"temprature": 1}, "temprature", "did you mean 'temperature'"),
]


@pytest.mark.parametrize(("change", "param", "message"), BAD, ids=lambda value: str(value)[:40])
def test_bad_requests_name_field_value_and_remedy(live, change, param, message):
    reply = live.post("/v1/completions", {"prompt": "Lily", **change})
    assert reply.status == 400
    assert message in reply.message
    assert reply.data["error"]["param"] == param
    assert reply.data["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"[]", b'"x"', b"\xff\xfe", b"[" * 20_000, b'{"steps": 1' + b"0" * 5000 + b"}"]
)
def test_bodies_that_are_no_request(live, body):
    assert live.send("POST", "/v1/completions", body).status == 400


def test_where_the_json_breaks_is_told(live):
    reply = live.send("POST", "/v1/completions", b'{"prompt": "Lily",}')
    assert "the body must be JSON" in reply.message
    assert "at character 1" in reply.message


def test_lone_surrogates(live):
    for body in (rb'{"prompt": "\ud800"}', rb'{"\ud800": 1}', rb'{"model": "\udfff"}'):
        assert live.send("POST", "/v1/completions", body).status in (400, 404)


HOSTILE = "\x1b[31m<script>\u202e\0"


@pytest.mark.parametrize("change", [{"model": HOSTILE}, {HOSTILE: 1}, {"sampler": HOSTILE}, {"prompt": HOSTILE}])
def test_what_a_request_held_is_inert_in_its_error(live, change):
    """Clients print errors on terminals."""
    error = live.post("/v1/completions", {"prompt": "Lily", **change}).data["error"]
    assert r"\x1b[31m<script>\u202e\x00" in error["message"]
    assert not any(sign in f"{error['message']}{error['param']}" for sign in "\x1b\u202e\0")


@pytest.mark.parametrize("change", [{"model": "m" * 100_000}, {"m" * 100_000: 1}, {"prompt": "m" * 100_000}])
def test_errors_are_short(live, change):
    reply = live.post("/v1/completions", {"prompt": "Lily", **change})
    assert reply.status in (400, 404)
    assert len(reply.body) < 2000


def test_the_remedy_survives_a_long_name(live):
    assert live.post("/v1/completions", {"model": "m" * 100_000}).message.endswith("there are many, one")


def test_other_methods(live):
    reply = live.send("GET", "/v1/completions")
    assert reply.status == 405
    assert reply.message == "/v1/completions takes POST; got GET"


def test_only_json_is_read(live):
    """A form or plain text, which pages of other sites can send without leave, does nothing."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        reply = live.send("POST", "/v1/completions", b'{"prompt": "Lily"}', {"Content-Type": kind})
        assert reply.status == 415


def test_other_names_for_this_machine_are_refused(live):
    for name in (
        "evil.example",
        f"localhost.evil.example:{live.port}",
        "[::1",
        "[::1x",
        "localhost:x",
        "localhost]",
        "",
    ):
        reply = live.send("GET", "/v1/models", headers={"Host": name})
        assert reply.status == 400
    assert "address it as one of 127.0.0.1, ::1, localhost" in reply.message
    for name in (f"localhost:{live.port}", "LOCALHOST", f"127.0.0.1:{live.port}", f"[::1]:{live.port}"):
        assert live.send("GET", "/v1/models", headers={"Host": name}).status == 200


@pytest.mark.skipif(not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists(), reason="no IPv6 here")
def test_the_other_loopback(served_models):
    with serving(served_models, host="::1") as live:
        assert live.send("GET", "/v1/models").status == 200


def test_no_cors(live):
    reply = live.send(
        "OPTIONS", "/v1/completions", headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    )
    assert reply.status == 405
    reply = live.send("GET", "/v1/models", headers={"Origin": "http://evil.example"})
    assert not [name for name in reply.headers if name.lower().startswith("access-control")]


def test_cors_for_sites_that_are_named(served_models):
    with serving(served_models, origins=["http://friend.example"], api_key="sesame") as live:
        for origin, allowed in (("http://friend.example", "http://friend.example"), ("http://evil.example", None)):
            asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
            reply = live.send("OPTIONS", "/v1/completions", headers={"Origin": origin, **asks})
            assert reply.headers.get("access-control-allow-origin") == allowed
            reply = live.send("GET", "/v1/models", headers={"Origin": origin, "Authorization": "Bearer sesame"})
            assert reply.headers.get("access-control-allow-origin") == allowed


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/completions", {"prompt": ["a"] * 50_000}), ("/v1/trace", {"prompt": "a [MASK]" * 30_000})],
    ids=["prompts", "gaps"],
)
def test_very_many_pieces_are_refused_before_they_are_looked_at(live, monkeypatch, path, body):
    """They would be encoded one by one, and everyone would wait for it."""
    monkeypatch.setattr(Tokenizer, "encode", lambda *arguments: pytest.fail("looked at"))
    assert live.post(path, body).status == 400


@pytest.mark.parametrize(
    "path", ["/../../etc/passwd", "/index.html/..", "/page/index.html", "/%2e%2e/limits.py", "/v1/none"]
)
def test_no_request_names_a_file(live, path):
    reply = live.send("GET", path)
    assert reply.status == 404
    assert reply.data["error"]["type"] == "not_found_error"


def test_the_page_needs_nothing_from_elsewhere(live):
    page = live.send("GET", "/")
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for own in (files("multimdm.serving") / "page").iterdir():
        file = live.send("GET", "/" if own.name == "index.html" else f"/{own.name}")
        assert file.status == 200
        outside = file.body.replace(b"http://www.w3.org/2000/svg", b"")
        assert b"http://" not in outside
        assert b"https://" not in outside
        assert b"innerHTML" not in file.body


def test_health_models_and_metrics(live):
    assert live.send("GET", "/healthz").data == {"status": "ok"}
    facts = live.send("GET", "/v1/models").data["data"][0]["multimdm"]
    assert (facts["num_masks"], facts["max_length"], facts["gap"]) == (3, 48, "[MASK]")
    before = live.service.metrics.value("multimdm_network_calls_total")
    live.post("/v1/completions", {"prompt": "Lily", "steps": 3})
    assert live.service.metrics.value("multimdm_network_calls_total") == before + 3
    text = live.send("GET", "/metrics").body.decode()
    assert 'multimdm_requests_total{path="/v1/completions",status="200"}' in text
    assert "multimdm_answer_seconds_bucket" in text
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(len(line.rsplit(" ", 1)) == 2 and float(line.rsplit(" ", 1)[1]) >= 0 for line in lines)


def test_openapi_is_there(live):
    paths = live.send("GET", "/openapi.json").data["paths"]
    assert {"/v1/completions", "/v1/chat/completions", "/v1/trace", "/v1/models"} <= set(paths)
