"""A server on a free port of the loopback, in a thread: real sockets, real clients."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from multimdm.serving.app import create_app
from multimdm.serving.catalog import ServedModel
from multimdm.serving.limits import Limits
from multimdm.serving.server import Address, bind, make_server
from multimdm.serving.service import Service

SLOW = {"prompt": "Lily", "steps": 256, "n": 4, "sampler": "confidence", "max_tokens": 47}
"""A request that takes long."""


class Live(NamedTuple):
    """A running server."""

    host: str
    port: int
    service: Service
    stop: Callable[[], None]
    """Asks it to shut down, as SIGTERM would."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def running(self) -> float:
        """Sequences under way."""
        return self.service.metrics.value("multimdm_running_sequences")

    @property
    def waiting(self) -> float:
        """Requests in the queue."""
        return self.service.metrics.value("multimdm_queue_requests")

    def send(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> "Reply":
        """One request; a body that is not bytes is sent as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        try:
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            return Reply(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def post(self, path: str, body: Any) -> "Reply":
        return self.send("POST", path, body)


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        return self.data["error"]["message"]

    def events(self) -> list[tuple[str, Any]]:
        """Name and data of every server-sent event."""
        result = []
        for block in self.body.decode().strip().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.split("\n"))
            data = fields["data"]
            result.append((fields.get("event", ""), data if data == "[DONE]" else json.loads(data)))
        return result


@contextmanager
def serving(
    served_models: dict[str, ServedModel],
    limits: Limits | None = None,
    api_key: str | None = None,
    host: str = "127.0.0.1",
    origins: Sequence[str] = (),
    grace: int = 20,
) -> Iterator[Live]:
    """Serve until the block ends; then wait for the end."""
    bound = bind(Address(host, 0))
    address = Address(host, bound.getsockname()[1])
    app = create_app(served_models, limits, api_key, address.hosts, origins)
    server = make_server(app, grace, quiet=True)
    thread = threading.Thread(target=server.run, args=([bound],), daemon=True)
    thread.start()
    wait_until(lambda: server.started or not thread.is_alive())

    def stop() -> None:
        server.should_exit = True

    try:
        yield Live(address.host, address.port, app.state.service, stop)
    finally:
        stop()
        thread.join(timeout=30)
        assert not thread.is_alive()


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Until it holds; an error if it does not in time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def read(connection: http.client.HTTPConnection) -> tuple[int, bytes]:
    """Status and body of the answer."""
    with connection.getresponse() as answer:
        return answer.status, answer.read()
