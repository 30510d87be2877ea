"""GET /docs and /openapi.json: the interface of the server, as a page that loads nothing from elsewhere.

The page is made once, when the server starts, from the description that clients can read as well.
"""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import FastAPI

_ERRORS = {
    "400": "A field is missing, wrong or unknown; `error.param` names it.",
    "401": "The server wants its API key.",
    "404": "There is no such model, or no such path.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
    "429": "Too many requests wait; `Retry-After` tells when to come back.",
    "500": "Something went wrong inside the server.",
    "503": "The server is stopping, or all connections are in use.",
}
_OF_READING = ("401", "404", "500", "503")
"""Errors of requests without a body."""
_FIRST = ("prompt", "messages", "suffix")
"""Fields that a reader looks for before others."""
_EXAMPLES = {
    "/v1/completions": '{"prompt": "Lily", "max_tokens": 16, "steps": 4}',
    "/v1/chat/completions": '{"messages": [{"role": "user", "content": "Lily"}], "steps": 4}',
    "/v1/trace": '{"prompt": "Lily found a [MASK].", "steps": 4}',
}


def describe(app: FastAPI) -> dict[str, Any]:
    """The description of all routes, with the errors that this server really answers with."""
    description = FastAPI.openapi(app)
    schemas = description["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Error"] = {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "param", "code"],
                "properties": {
                    "message": {"type": "string"},
                    "type": {"type": "string"},
                    "param": {"type": ["string", "null"]},
                    "code": {"type": ["string", "null"]},
                },
            }
        },
    }
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    for routes in description["paths"].values():
        for method, route in routes.items():
            answers = route["responses"]
            answers.pop("422", None)  # the framework's own; bad requests are answered 400 here
            answers["200"]["description"] = "The answer."
            answers |= {
                status: {"description": text, "content": content}
                for status, text in _ERRORS.items()
                if method == "post" or status in _OF_READING
            }
    return description


def api_page(description: Mapping[str, Any]) -> str:
    """All routes: what they are for, their fields, an example, their answers."""
    info = description["info"]
    body = "\n".join(
        part
        for path, routes in description["paths"].items()
        for method, route in routes.items()
        for part in _route(description, path, method, route)
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(info["title"])}: the interface</title>
<link rel="icon" href="/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/playground.css">
<link rel="stylesheet" href="/docs.css">
</head>
<body>
<header>
  <img src="/icon.svg" alt="" width="34" height="34">
  <div>
    <h1>{escape(info["title"])} {escape(info["version"])}</h1>
    <p>What this server understands. For programs: <a href="/openapi.json">openapi.json</a> (OpenAPI
    {escape(description["openapi"])}). For people: <a href="/">the playground</a></p>
  </div>
</header>
<main>
{body}
</main>
</body>
</html>
"""


def _route(whole: Mapping[str, Any], path: str, method: str, route: Mapping[str, Any]) -> Iterator[str]:
    yield '<section class="card route">'
    yield f"<h2><span>{escape(method.upper())}</span> <code>{escape(path)}</code></h2>"
    yield f"<p>{_text(route.get('description', ''))}</p>"
    if "requestBody" in route:
        schema = _resolved(whole, route["requestBody"]["content"]["application/json"]["schema"])
        yield from _fields(whole, schema)
        example = _EXAMPLES.get(path, "{}")
        yield f"<pre>curl $SERVER{escape(path)} -H 'Content-Type: application/json' -d '{escape(example)}'</pre>"
    yield '<table class="answers"><thead><tr><th>answer</th><th></th></tr></thead><tbody>'
    for status, answer in route["responses"].items():
        yield f"<tr><td><code>{escape(status)}</code></td><td>{_text(answer['description'])}</td></tr>"
    yield "</tbody></table></section>"


def _fields(whole: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    yield '<table class="fields"><thead><tr><th>field</th><th>type</th><th></th></tr></thead><tbody>'
    for name, field in sorted(schema["properties"].items(), key=lambda item: item[0] not in _FIRST):
        needed = " <strong>needed</strong>" if name in schema.get("required", ()) else ""
        kind = escape(_kind(whole, field))
        yield f"<tr><td><code>{escape(name)}</code>{needed}</td><td>{kind}</td><td>{_text(_about(field))}</td></tr>"
    yield "</tbody></table>"


def _about(field: Mapping[str, Any]) -> str:
    default = field.get("default")
    said = field.get("description", "")
    return said if default in (None, "", False) else f"{said} {default} unless given."


def _kind(whole: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """What a field may be, in words."""
    if "anyOf" in schema:
        kinds = [_kind(whole, one) for one in schema["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "$ref" in schema:
        found = _resolved(whole, schema)
        fields = found.get("properties", {})
        return "{" + ", ".join(f"{name}: {_kind(whole, field)}" for name, field in fields.items()) + "}"
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(str(value).lower() if isinstance(value, bool) else str(value) for value in values)
    if schema.get("type") == "array":
        return f"list of {_kind(whole, schema['items'])}"
    words = {"string": "text", "integer": "integer", "number": "number", "boolean": "true or false"}
    return words.get(str(schema.get("type")), "object")


def _resolved(whole: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found = whole
    for part in schema["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return found


def _text(text: str) -> str:
    """Sentences, in which `names` are set as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts))
