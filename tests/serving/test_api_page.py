"""The description of the interface: complete, true, and from this server alone."""

import re

import openai
import pytest

from multimdm.serving.api_page import api_page
from multimdm.serving.schemas import ChatRequest, CompletionRequest, TraceRequest

PATHS = {"/v1/completions": CompletionRequest, "/v1/chat/completions": ChatRequest, "/v1/trace": TraceRequest}


@pytest.fixture(scope="module")
def page(live) -> str:
    reply = live.send("GET", "/docs")
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/html")
    return reply.body.decode()


def test_every_route_and_every_field_is_there(page):
    sections = {path: part for part in page.split("<section") for path in PATHS if f"<code>{path}</code></h2>" in part}
    assert set(sections) == set(PATHS)
    for path, schema in PATHS.items():
        for name, field in schema.model_fields.items():
            assert f"<code>{name}</code>" in sections[path]
            assert field.description or name in ("candidates",)
    for other in ("/v1/models", "/v1/models/{name}", "/healthz", "/metrics"):
        assert f"<code>{other}</code></h2>" in page


def test_nothing_comes_from_elsewhere(live, page):
    addresses = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert len(addresses) >= 5
    for address in addresses:
        assert address.startswith("/")
        assert live.send("GET", address).status == 200
    assert "<script" not in page
    assert "//" not in page.replace("://", "")


def test_answers_are_those_that_are_given(live):
    description = live.send("GET", "/openapi.json").data
    for path, schema in PATHS.items():
        answers = description["paths"][path]["post"]["responses"]
        assert "422" not in answers
        bad = live.post(path, {name: [[]] for name in schema.model_fields})
        assert str(bad.status) in answers
        error = description["components"]["schemas"]["Error"]["properties"]["error"]
        assert set(bad.data["error"]) == set(error["required"])
    assert not any("Validation" in name for name in description["components"]["schemas"])


def test_words_are_never_markup():
    route = {
        "description": "<script>alert(1)</script> of `<b>`",
        "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/X"}}}},
        "responses": {"200": {"description": "<i>"}},
    }
    field = {"type": "string", "description": "<u>", "default": "<s>"}
    page = api_page(
        {
            "openapi": "3.1.0",
            "info": {"title": "<t>", "version": "<v>"},
            "paths": {"/<path>": {"post": route}},
            "components": {"schemas": {"X": {"properties": {"<name>": field}}}},
        }
    )
    assert not re.findall(r"<(script|b|i|u|s|t|v|path|name)>", page)
    assert "&lt;script&gt;alert(1)&lt;/script&gt; of <code>&lt;b&gt;</code>" in page


def test_paths_of_others_are_answered_with_ours(live):
    """OpenAI's newer interface is not here; who asks for it learns what is."""
    with (
        openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as client,
        pytest.raises(openai.NotFoundError, match=r"no POST /v1/responses here; there are .*/v1/chat/completions"),
    ):
        client.responses.create(model="many", input="Lily")
    assert "<" not in live.send("GET", "/" + "x" * 500).message
    assert len(live.send("GET", "/" + "x" * 500).message) < 300
