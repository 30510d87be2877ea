"""With a key, only those who know it are served."""

import openai
import pytest

from support.live_server import serving


@pytest.fixture(scope="module")
def locked(served_models):
    with serving(served_models, api_key="sesame-ö") as live:
        yield live


@pytest.mark.parametrize("value", [None, "", "Bearer", "Bearer open", "Basic sesame-ö", "Bearer sesame-öö"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/completions"),
        ("POST", "/v1/trace"),
        ("GET", "/v1/models"),
        ("GET", "/metrics"),
    ],
)
def test_without_the_key(locked, method, path, value):
    headers = {} if value is None else {"Authorization": value.encode().decode("latin-1")}
    reply = locked.send(method, path, {"prompt": "Lily"} if method == "POST" else None, headers)
    assert reply.status == 401
    assert reply.headers["www-authenticate"] == "Bearer"
    assert "sesame" not in reply.message


def test_with_the_key(locked):
    headers = {"Authorization": "Bearer sesame-ö".encode().decode("latin-1")}
    assert locked.send("POST", "/v1/completions", {"prompt": "Lily", "steps": 1}, headers).status == 200


def test_the_page_and_the_pulse_are_open(locked):
    for path in ("/", "/playground.js", "/docs", "/openapi.json", "/healthz"):
        assert locked.send("GET", path).status == 200


def test_the_official_client(served_models):
    with serving(served_models, api_key="sesame") as live:
        with openai.OpenAI(base_url=f"{live.url}/v1", api_key="sesame", max_retries=0) as client:
            assert len(client.models.list().data) == 2
        stranger = openai.OpenAI(base_url=f"{live.url}/v1", api_key="other", max_retries=0)
        with stranger, pytest.raises(openai.AuthenticationError):
            stranger.models.list()
