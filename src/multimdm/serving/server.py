"""Run the application: uvicorn with bounds on connections, and an end that loses nothing."""

import asyncio
import ipaddress
import json
import socket
import time
from dataclasses import dataclass
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from multimdm.serving.errors import ApiError
from multimdm.serving.limits import Limits

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Address:
    """Where the server listens."""

    host: str = "127.0.0.1"
    port: int = 8000

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names that requests may use for it."""
        return (*_LOOPBACK_NAMES, self.host) if self.loopback else ("*",)

    @property
    def url(self) -> str:
        """The address as a browser takes it."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/"


def bind(address: Address) -> socket.socket:
    """The port, ours from here on. No one is let in yet: who comes too early is refused and does not hang."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(place)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise ValueError(
            f"--host {address.host} --port {address.port}: {error.strerror or error}; "
            "name another, or --port 0 for a free one"
        ) from None
    return bound


def make_server(app: FastAPI, grace: int, quiet: bool = False) -> uvicorn.Server:
    """A server that finishes its requests on SIGINT or SIGTERM, for `grace` seconds at most, and takes no more."""
    config = uvicorn.Config(
        app,
        log_level="warning" if quiet else "info",
        timeout_graceful_shutdown=grace,
        timeout_keep_alive=30,
        server_header=False,
        http=_limited(app.state.service.limits),  # h11, which gives up on heads that stay unfinished beyond 64 KB
        ws="none",
    )
    return uvicorn.Server(config)


class Connection(H11Protocol):
    """uvicorn's connection, with bounds that it has not: on their number, and on the time of a request's head.

    When all places are taken, the connection that has been idle for longest gives way; clients open another one when
    they need it. If none is idle, the new one is told to come back.
    """

    limits: Limits
    """The limits of the server; set by `_limited`."""
    idle_since: float = 0.0
    head_timer: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        """Whether no request is under way: none has come, or the last one is answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take a place, if there is one."""
        super().connection_made(transport)
        self.idle_since = time.monotonic()
        self._await_head()
        others = [one for one in self.connections if one is not self and not one.transport.is_closing()]
        if len(others) < self.limits.connections:
            return
        waiting = [one for one in others if isinstance(one, Connection) and one.idle]
        if waiting:
            min(waiting, key=lambda one: one.idle_since).transport.close()
        else:
            transport.write(_busy())
            transport.close()

    def data_received(self, data: bytes) -> None:
        """Hear a part of a request; its head must be whole in time, however often a part of it comes."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.idle:
            self._await_head()
        else:
            self._head_is_whole()

    def on_response_complete(self) -> None:
        """The time of being idle begins; uvicorn bounds it."""
        self.idle_since = time.monotonic()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._head_is_whole()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        if self.head_timer is None:
            self.head_timer = self.loop.call_later(self.limits.body_seconds, self.transport.close)

    def _head_is_whole(self) -> None:
        if self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None


def _limited(limits: Limits) -> type[Connection]:
    """Connections of a server with these limits: uvicorn makes them by itself, so the class has to know."""
    return type("LimitedConnection", (Connection,), {"limits": limits})


def _busy() -> bytes:
    """An answer to a request that was not heard."""
    data: dict[str, Any] = ApiError(503, "all connections are in use; try again in 1 s", code="busy").as_data()
    body = json.dumps(data).encode()
    head = (
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
        f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
