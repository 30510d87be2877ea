"""The clients of a soak, honest and other, and the account of what they saw (soak.py)."""

import asyncio
import json
import random
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from soak_bodies import PATHS, Body

CROWD = {"honest": 16, "stream": 8, "slow": 8, "vanish": 8, "malformed": 12, "idle": 8, "oversized": 4}
"""64 clients."""
ALONE, MIXED = 15.0, 45.0
"""Seconds of a cycle in which honest clients are alone, and in which they are not."""
SETTLING = 1.0
"""Seconds at the beginning of each that count for neither."""


@dataclass
class Account:
    """What was seen."""

    latencies: dict[str, list[float]] = field(default_factory=lambda: {"alone": [], "mixed": []})
    requests: Counter = field(default_factory=Counter)
    """By kind of client."""
    statuses: Counter = field(default_factory=Counter)
    """By kind of client and status."""
    compared: int = 0
    """Answers, whole or streamed, that were compared with the library's."""
    wrong: list[str] = field(default_factory=list)
    """Answers of 500 and above, lost ones, and those that are not the library's."""

    def see(self, kind: str, status: int, what: str) -> None:
        """An answer's status."""
        self.requests[kind] += 1
        self.statuses[kind, status] += 1
        if status >= 500:
            self.wrong.append(f"{kind}: {status} to {what[:200]}")


# ----------------------------------------------------------------- connections


class Line:
    """A connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, method: str, path: str, body: bytes = b"", headers: str = "", length: int | None = None) -> None:
        """A request, which may tell of a longer body than it has."""
        length = len(body) if length is None else length
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{headers}"
        self.writer.write(f"{head}Content-Length: {length}\r\n\r\n".encode("latin-1", "replace") + body)

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of the answer."""
        first = (await self.reader.readuntil(b"\r\n")).split()
        headers = {}
        while (line := await self.reader.readuntil(b"\r\n")) != b"\r\n":
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        return int(first[1]), headers

    async def body(self, headers: dict[str, str]) -> bytes:
        """The rest of the answer."""
        if headers.get("transfer-encoding") != "chunked":
            return await self.reader.readexactly(int(headers.get("content-length", "0")))
        pieces = []
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            pieces.append(await self.reader.readexactly(size))
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)
        return b"".join(pieces)

    async def answer(self) -> tuple[int, bytes]:
        """All of it."""
        status, headers = await self.head()
        return status, await self.body(headers)


@asynccontextmanager
async def line(port: int, room: int | None = None):
    """A connection that is closed in any case; `room`: bytes that are kept for a client that does not read."""
    with socket.socket() as made:
        if room is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
        # A reader that is to be slow must not have the answer read for it.
        reader, writer = await asyncio.open_connection(sock=made, limit=room or 2**20)
        try:
            yield Line(reader, writer)
        finally:
            writer.transport.abort()


GONE = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)
"""The server closed the connection."""


# --------------------------------------------------------------------- clients


@dataclass
class Crowd:
    """Clients, and what they need."""

    port: int
    expected: dict[int, str]
    """Number of a request -> the library's answer."""
    request: Callable[[int], dict[str, Any]]
    bodies: Iterator[Body]
    """Malformed ones, without an end."""
    num_bodies: int
    """How many of them are sent, evenly over the time that is left for them."""
    seed: int = 0
    account: Account = field(default_factory=Account)
    phase: str = "settling"
    pace: float = 1.0
    """How many times longer clients pause between requests than those of a server that has a core for itself; those
    that send malformed bodies have a number to send, and keep to it."""
    _every: float = 0.0
    """Seconds from one malformed body of a client to its next."""

    async def _pause(self, rng: random.Random, most: float) -> None:
        await asyncio.sleep(self.pace * rng.uniform(0, most))

    async def honest(self, rng: random.Random) -> None:
        """One after the other, on one connection."""
        while True:
            with suppress(*GONE):
                async with line(self.port) as held:
                    while True:
                        await self._pause(rng, 1.0)
                        await self._ask(held, rng)

    async def _ask(self, held: Line, rng: random.Random) -> None:
        number, phase, begun = rng.choice(list(self.expected)), self.phase, time.perf_counter()
        held.send("POST", PATHS[0], json.dumps(self.request(number)).encode())
        try:
            status, body = await held.answer()
        except GONE as error:
            self.account.wrong.append(f"honest: request {number} was lost: {error!r}")
            raise
        took = time.perf_counter() - begun
        self.account.see("honest", status, str(number))
        if status == 200:
            self._compare("honest", number, json.loads(body)["choices"][0]["text"])
        else:
            self.account.wrong.append(f"honest: {status} {body[:200]!r}")
        if phase == self.phase and phase in self.account.latencies:
            self.account.latencies[phase].append(took)

    def _compare(self, kind: str, number: int, text: str) -> None:
        self.account.compared += 1
        if text != self.expected[number]:
            self.account.wrong.append(f"{kind}: request {number} has another's answer: {text[:100]!r}")

    async def stream(self, rng: random.Random) -> None:
        """Streams, read to their ends."""
        while True:
            await self._pause(rng, 1.0)
            async with line(self.port) as held:
                await self._streamed("stream", held, rng, pause=0.0)

    async def slow(self, rng: random.Random) -> None:
        """Streams, read a few bytes at a time, or not at all for longer than the server waits."""
        while True:
            await self._pause(rng, 1.0)
            async with line(self.port, room=2048) as held:
                if rng.random() < 0.3:
                    held.send("POST", "/v1/trace", json.dumps({"prompt": "", "steps": 8, "candidates": 10}).encode())
                    await asyncio.sleep(rng.uniform(5, 25))
                    self.account.requests["slow"] += 1
                else:
                    await self._streamed("slow", held, rng, pause=0.05)

    async def _streamed(self, kind: str, held: Line, rng: random.Random, pause: float) -> None:
        number = rng.choice(list(self.expected))
        held.send("POST", PATHS[0], json.dumps({**self.request(number), "stream": True}).encode())
        try:
            status, headers = await held.head()
            content = bytearray()
            if status != 200:
                await held.body(headers)
            while status == 200 and not content.endswith(b"0\r\n\r\n"):
                piece = await held.reader.read(256 if pause else 65_536)
                if not piece:
                    raise ConnectionResetError("closed before the end of the stream")
                content += piece
                await asyncio.sleep(pause)
        except GONE as error:
            self.account.wrong.append(f"{kind}: request {number} was lost: {error!r}")
            return
        self.account.see(kind, status, str(number))
        if status == 200:
            self._compare(kind, number, _text_of(_unchunked(bytes(content))))

    async def vanish(self, rng: random.Random) -> None:
        """Ask for much, and leave."""
        while True:
            async with line(self.port) as held:
                wanted = {"prompt": "", "n": rng.randint(1, 4), "steps": rng.choice((16, 64, 256))}
                held.send("POST", PATHS[0], json.dumps({**wanted, "stream": rng.random() < 0.5}).encode())
                await asyncio.sleep(rng.uniform(0, 0.3))
                self.account.requests["vanish"] += 1
                if rng.random() < 0.5:
                    held.writer.close()  # politely; the others cut the line
            await self._pause(rng, 2.0)

    async def malformed(self, rng: random.Random) -> None:
        """Bodies that are no requests, or hardly any; who was kept waiting for an answer does not pause."""
        due = time.monotonic() + rng.uniform(0, self._every)
        while True:
            async with line(self.port) as held:
                for number in range(50):
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
                    if self._left() <= 0:
                        return
                    due += self._every
                    path, content = next(self.bodies)
                    held.send("POST", path, content)
                    try:
                        async with asyncio.timeout(60):
                            status, _ = await held.answer()
                    except GONE as error:
                        if number == 0 or isinstance(error, TimeoutError):  # else it was closed after the last answer
                            self.account.wrong.append(f"malformed: no answer to {path} {content[:200]!r}: {error!r}")
                        break
                    self.account.see("malformed", status, f"{path} {content!r}")

    def _left(self) -> int:
        """Malformed bodies that are still to be sent."""
        return self.num_bodies - self.account.requests["malformed"]

    async def idle(self, rng: random.Random) -> None:
        """Say nothing, or half of a head, or half of a body, or nothing more after an answer; and stay."""
        while True:
            with suppress(*GONE):
                async with line(self.port) as held:
                    how = rng.randrange(4)
                    if how == 1:
                        held.writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: ")
                    elif how == 2:
                        held.send("POST", PATHS[0], b'{"prompt": "', length=50)
                    elif how == 3:
                        held.send("GET", "/healthz")
                        status, _ = await held.answer()
                        self.account.see("idle", status, "/healthz")
                    self.account.requests["idle"] += 1
                    async with asyncio.timeout(rng.uniform(5, 40)):
                        await held.reader.read(65_536)
            await self._pause(rng, 1.0)

    async def oversized(self, rng: random.Random) -> None:
        """Heads, addresses and bodies beyond all measure."""
        while True:
            with suppress(*GONE):
                async with line(self.port) as held:
                    how, many = rng.randrange(4), rng.choice((70_000, 200_000, 1_000_000))
                    if how == 0:
                        held.send("GET", "/healthz", headers=f"X-Long: {'a' * many}\r\n")
                    elif how == 1:
                        held.send("GET", "/healthz", headers="".join(f"X-{i}: b\r\n" for i in range(many // 10)))
                    elif how == 2:
                        held.send("GET", "/" + "c" * many)
                    else:
                        held.send("POST", PATHS[0], b'{"prompt": "' + b"d" * many + b'"}')
                    async with asyncio.timeout(30):
                        status, _ = await held.answer()
                        self.account.see("oversized", status, f"kind {how}")
            await self._pause(rng, 2.0)

    # ------------------------------------------------------------------ together

    async def soak(self, seconds: float, watch: Callable[[float], None]) -> None:
        """Alone and among others in turn; `watch` hears, at the end of every time alone, how much is left."""
        end = time.monotonic() + seconds
        honest = self._start(("honest",), 0)
        cycle = 0
        while time.monotonic() < end:
            cycle += 1
            others: list[asyncio.Task] = []
            await self._during("alone", min(ALONE, seconds / 4), honest)
            watch(end - time.monotonic())
            self._every = CROWD["malformed"] * _mixed_seconds(end - time.monotonic()) / max(1, self._left())
            try:
                others = self._start(tuple(kind for kind in CROWD if kind != "honest"), cycle)
                await self._during("mixed", min(MIXED, max(0.0, end - time.monotonic())), [*honest, *others])
            finally:
                await _stop(others)
        await self._during("alone", min(ALONE, seconds / 4), honest)
        watch(0.0)
        await _stop(honest)

    def _start(self, kinds: tuple[str, ...], cycle: int) -> list[asyncio.Task]:
        clients: list[Awaitable[None]] = []
        for kind in kinds:
            for number in range(CROWD[kind]):
                clients.append(getattr(self, kind)(random.Random(f"{self.seed} {cycle} {kind} {number}")))
        return [asyncio.ensure_future(client) for client in clients]

    async def _during(self, phase: str, seconds: float, clients: list[asyncio.Task]) -> None:
        """For so long; a client that fails is a fault of this program, and ends it."""
        self.phase = "settling"
        await asyncio.sleep(min(SETTLING, seconds / 2))
        self.phase = phase
        done, _ = await asyncio.wait(clients, timeout=max(0.0, seconds - SETTLING), return_when=asyncio.FIRST_EXCEPTION)
        self.phase = "settling"
        for client in done:
            client.result()


def _mixed_seconds(left: float) -> float:
    """Of the seconds that are left when others come, those in which they are there, but for a little at the end, so
    that the last answers come before the clients are stopped."""
    cycles, rest = divmod(left, ALONE + MIXED)
    return MIXED * cycles + 0.95 * min(MIXED, rest)


async def _stop(clients: list[asyncio.Task]) -> None:
    for client in clients:
        client.cancel()
    _, staying = await asyncio.wait(clients, timeout=30) if clients else ((), ())
    if staying:
        raise RuntimeError(f"{len(staying)} clients do not leave")


def _unchunked(content: bytes) -> bytes:
    pieces = []
    while content:
        size, _, rest = content.partition(b"\r\n")
        pieces.append(rest[: int(size, 16)])
        content = rest[int(size, 16) + 2 :]
    return b"".join(pieces)


def _text_of(events: bytes) -> str:
    """What a stream of completions says in all."""
    told = [block.removeprefix(b"data: ") for block in events.strip().split(b"\n\n")]
    chunks = [json.loads(one) for one in told if one != b"[DONE]"]
    # A fault amid a stream comes as an event without choices; its text then stands for what is missing.
    return "".join(choice["text"] for one in chunks for choice in one.get("choices", [{"text": json.dumps(one)}]))
