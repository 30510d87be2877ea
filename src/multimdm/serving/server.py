"""Run the application: uvicorn with bounds, and an end that loses nothing."""

import ipaddress
import socket
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI

from multimdm.serving.connections import limited

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
        """For a browser."""
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
    """On SIGINT or SIGTERM it takes no more requests and finishes those that it has, for `grace` seconds at most."""
    config = uvicorn.Config(
        app,
        log_level="warning" if quiet else "info",
        timeout_graceful_shutdown=grace,
        timeout_keep_alive=30,
        server_header=False,
        http=limited(app.state.service.limits),  # h11, which gives up on heads that stay unfinished beyond 64 KB
        ws="none",
    )
    return uvicorn.Server(config)
