"""What stands before every route: bounds on bodies, names, the API key, headers for browsers, a count of answers."""

import asyncio
import hmac
import re
from collections.abc import Collection
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from multimdm.serving.errors import ApiError
from multimdm.serving.limits import Limits
from multimdm.serving.metrics import Metrics

_BROWSER = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
"""The page may load and reach nothing but its own server, whatever a text contains."""

_HOST = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*))(?::\d*)?")
"""A name, or an address of IPv6 in brackets, with a port or without."""


class Guard:
    """Plain ASGI, so that routes still hear when a client leaves."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        metrics: Metrics,
        api_key: str | None,
        public: Collection[str],
        hosts: Collection[str],
    ) -> None:
        self._app, self._limits, self._metrics = app, limits, metrics
        self._key = api_key.encode() if api_key is not None else None
        self._public = public
        """Paths that need no key: the page itself and whether the server lives."""
        self._hosts = {host.lower() for host in hosts}
        """Names under which the server may be addressed; "*" for any."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        counted = self._counting(scope, send)
        try:
            self._check_host(scope)
            self._check_key(scope)
            body = await self._body(scope, receive)
        except ApiError as error:
            await error.as_response()(scope, receive, counted)
            return
        except _ClientLeftError:
            return
        with suppress(_ClientLeftError):
            await self._app(scope, _replayed(body, receive), counted)

    def _check_host(self, scope: Scope) -> None:
        """A page elsewhere may give its own name our address; its requests then name a host that we are not."""
        if "*" in self._hosts:
            return
        given = _header(scope, b"host").decode("latin-1").lower()
        parts = _HOST.fullmatch(given)
        name = given if parts is None else parts[1] or parts[2]
        if name not in self._hosts:
            known = ", ".join(sorted(self._hosts))
            raise ApiError(400, f"Host: this server is not '{name}'; address it as one of {known}", code="unknown_host")

    def _check_key(self, scope: Scope) -> None:
        if self._key is None or scope["path"] in self._public:
            return
        scheme, _, given = _header(scope, b"authorization").partition(b" ")
        # The comparison takes the same time wherever the keys differ.
        if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self._key):
            raise ApiError(
                401,
                "this server wants its API key: send the header 'Authorization: Bearer KEY'",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """All of it, if it is JSON and not too large.

        A page of another site can make a browser send forms and plain text, but not JSON without being asked for leave.
        """
        if scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return b""
        kind = _header(scope, b"content-type").split(b";")[0].strip().lower()
        if kind != b"application/json":
            raise ApiError(415, "the body must be JSON: send the header 'Content-Type: application/json'")
        most, body = self._limits.max_body, bytearray()
        length = _header(scope, b"content-length")
        if length.isdigit() and int(length[:20]) > most:
            raise _too_large(most)
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _ClientLeftError
                    body += message.get("body", b"")
                    if len(body) > most:
                        raise _too_large(most)
                    if not message.get("more_body"):
                        return bytes(body)
        except TimeoutError:
            raise ApiError(408, f"the body did not arrive within {self._limits.body_seconds:g} s") from None

    def _counting(self, scope: Scope, send: Send) -> Send:
        """Count the answer, and add the headers for browsers."""

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = scope.get("route")
                path = getattr(route, "path", "other")  # a known one: what clients send must not become labels
                self._metrics.add_answer(path, message["status"])
                extra = [(name.lower().encode(), value.encode()) for name, value in _BROWSER.items()]
                message = {**message, "headers": [*message.get("headers", []), *extra]}
            try:
                async with asyncio.timeout(self._limits.body_seconds):
                    await send(message)
            except TimeoutError:  # who does not read must not keep an answer here for ever
                raise _ClientLeftError from None

        return counted


class _ClientLeftError(Exception):
    """Before its request was complete, or its answer taken."""


def _too_large(most: int) -> ApiError:
    return ApiError(413, f"the body must have at most {most} bytes", headers={"Connection": "close"})


def _header(scope: Scope, name: bytes) -> bytes:
    return next((value for key, value in scope["headers"] if key == name), b"")


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body first, then whatever comes: the client's leaving."""
    first = True

    async def replay() -> Message:
        nonlocal first
        if first:
            first = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return replay
