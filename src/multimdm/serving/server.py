"""Run the application: uvicorn with bounds, and an end that loses nothing."""

import ipaddress
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1", "[::1]")


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


def make_server(app: FastAPI, address: Address, grace: int, quiet: bool = False) -> uvicorn.Server:
    """On SIGINT or SIGTERM it takes no more requests and finishes those that it has, for `grace` seconds at most."""
    config = uvicorn.Config(
        app,
        host=address.host,
        port=address.port,
        log_level="warning" if quiet else "info",
        timeout_graceful_shutdown=grace,
        timeout_keep_alive=30,
        server_header=False,
        ws="none",
    )
    return uvicorn.Server(config)
