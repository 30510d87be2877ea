"""What sharing network calls gains a server, and whether it changes an answer.

    python benchmarks/serving.py
    python benchmarks/serving.py --checkpoint runs/tales-mdlm/model --seconds 30
    python benchmarks/serving.py --soak 30   # hostile clients instead, for 30 minutes (soak.py)

Two servers on the loopback, one with room for 32 sequences in a network call and one that serves one request at a
time. 32 clients ask each in turn for a bounded time, with mixed lengths and steps. Every answer is compared with the
one that the library gives alone for the same seed.
"""

import argparse
import http.client
import json
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from multimdm.data.tales import Tales, tales_tokenizer
from multimdm.models import DiT, DiTConfig
from multimdm.pipeline import Model, load
from multimdm.process import MultiMask
from multimdm.serving.catalog import ServedModel
from multimdm.serving.plans import Slot
from multimdm.serving.texts import answer

LENGTHS, STEPS = (12, 24, 36, 48), (2, 4, 8, 16)
REQUESTS = 192
"""Different ones; clients go through them again and again."""


@dataclass
class Round:
    """What clients saw in one bounded time."""

    seconds: float
    latencies: list[float] = field(default_factory=list)
    answers: list[tuple[int, str]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def random_model() -> Model:
    """A network of the size of the recipes `tales-*`, with weights that predict something."""
    tales = Tales()
    V, M = tales.vocab_size, 20
    config = DiTConfig(vocab_size=V, num_masks=M, hidden_dim=128, num_blocks=4, num_heads=4, cond_dim=64, max_length=48)
    network, generator = DiT(config).eval(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in network.parameters():
            weights.normal_(0.0, 0.1, generator=generator)
    return Model(network, MultiMask(V, M), tales_tokenizer(tales))


def request(number: int) -> dict[str, Any]:
    """Number 0 .. REQUESTS-1, of mixed lengths and steps; its seed is its number."""
    length, steps = LENGTHS[number % 4], STEPS[number // 4 % 4]
    return {"prompt": "", "max_tokens": length, "steps": steps, "seed": number}


def alone(served: ServedModel, number: int) -> str:
    """The answer of the library, without a server."""
    asked = request(number)
    ids = served.model.sample(num=1, length=asked["max_tokens"], steps=asked["steps"], seed=number).ids[0].tolist()
    return answer(served, Slot((None,) * len(ids), slice(0, len(ids))), ids).text


class Served(NamedTuple):
    """A server that answers."""

    port: int
    pid: int
    log: Path
    """What it writes."""


@contextmanager
def server(checkpoint: str, batch: int) -> Iterator[Served]:
    """`multimdm serve` in a process of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "multimdm", "serve", checkpoint, "--port", str(port)]
    command += ["--batch", str(batch), "--quiet", "--device", "cpu"]
    log = Path(checkpoint).resolve().parent / f"server-{port}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        deadline = time.monotonic() + 120
        while not _alive(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the server did not start")
            time.sleep(0.2)
        yield Served(port, process.pid, log)
    finally:
        process.terminate()
        process.wait(60)


def _alive(port: int) -> bool:
    try:
        return get(port, "/healthz").startswith("{")
    except OSError:
        return False


def get(port: int, path: str) -> str:
    """The body of a page."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def load_test(port: int, clients: int, seconds: float) -> Round:
    """Clients that ask again as soon as they are answered; each begins at another request."""
    result, lock = Round(seconds), threading.Lock()
    end = time.perf_counter() + seconds

    def client(first: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        number = first
        while time.perf_counter() < end:
            begun = time.perf_counter()
            try:
                body = json.dumps(request(number))
                connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
                reply = connection.getresponse()
                data = json.loads(reply.read())
            except (OSError, http.client.HTTPException, ValueError) as error:
                with lock:
                    result.errors.append(repr(error))
                break
            took = time.perf_counter() - begun
            with lock:
                if reply.status == 200:
                    result.latencies.append(took)
                    result.answers.append((number, data["choices"][0]["text"]))
                else:
                    result.errors.append(f"{reply.status} {data}")
            number = (number + clients) % REQUESTS
        connection.close()

    threads = [threading.Thread(target=client, args=(number * REQUESTS // clients,)) for number in range(clients)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    result.seconds = time.perf_counter() - begun
    return result


def rows_per_call(port: int) -> float:
    """How many sequences shared a network call, on average."""
    found = dict(re.findall(r"^multimdm_network_(calls|rows)_total (\S+)$", get(port, "/metrics"), re.MULTILINE))
    return float(found["rows"]) / max(1.0, float(found["calls"]))


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--checkpoint", help="a model of at least 48 tokens; a random one of the tales' size unless given"
    )
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each server and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="hostile clients instead, for so long")
    parser.add_argument("--pace", type=float, default=1.0, help="of --soak: clients pause so many times longer")
    parser.add_argument("--malformed", type=int, help="of --soak: malformed bodies in all (100,000 in 30 minutes)")
    parser.add_argument("--bodies", type=int, default=5000, help="of --soak: malformed bodies to make others of")
    parser.add_argument("--schemathesis", help="of --soak: this program, for bodies, then for a tenth of the time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        checkpoint = options.checkpoint or str(Path(directory) / "model")
        if options.checkpoint is None:
            random_model().save(checkpoint)
        if options.soak is None:
            measure(checkpoint, options)
            return 0
        return under_hostile_use(checkpoint, options)


def under_hostile_use(checkpoint: str, options: argparse.Namespace) -> int:
    """0 if all that must hold does."""
    from soak import soak, tell

    served = ServedModel.of("alone", load(checkpoint))
    expected = {number: alone(served, number) for number in range(0, REQUESTS, 3)}
    with server(checkpoint, batch=32) as served:
        load_test(served.port, 4, 1.0)  # to warm up
        outcome = soak(served, expected, request, options)
    return 0 if tell(outcome) else 1


def measure(checkpoint: str, options: argparse.Namespace) -> None:
    """Both servers in turn, so that a busy spell of the machine hits them alike."""
    rounds: dict[str, list[Round]] = {"one at a time": [], "shared calls": []}
    with server(checkpoint, batch=1) as single, server(checkpoint, batch=32) as shared:
        ports = {"one at a time": single.port, "shared calls": shared.port}
        for port in ports.values():
            load_test(port, 4, 1.0)  # to warm up
        for _ in range(options.rounds):
            for name, port in ports.items():
                rounds[name].append(load_test(port, options.clients, options.seconds))
        sharing = {name: rows_per_call(port) for name, port in ports.items()}
    served = ServedModel.of("alone", load(checkpoint))
    expected = {number: alone(served, number) for number in range(REQUESTS)}
    report(rounds, sharing, expected, options)


def report(
    rounds: dict[str, list[Round]], sharing: dict[str, float], expected: dict[int, str], options: argparse.Namespace
) -> None:
    """The table, and what must hold."""
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {options.clients} clients")
    print(f"{options.rounds} rounds of {options.seconds:g} s for each server\n")
    print("| server | requests/s | p50 | p99 | sequences per call | answers | errors | not as alone |")
    print("|---|---|---|---|---|---|---|---|")
    speed: dict[str, float] = {}
    for name, several in rounds.items():
        latencies = sorted(seconds for one in several for seconds in one.latencies)
        answers = [given for one in several for given in one.answers]
        wrong = sum(text != expected[number] for number, text in answers)
        errors = [error for one in several for error in one.errors]
        speed[name] = statistics.median(len(one.answers) / one.seconds for one in several)
        middle, late = (latencies[int(share * (len(latencies) - 1))] for share in (0.5, 0.99))
        print(
            f"| {name} | {speed[name]:.1f} | {middle:.2f} s | {late:.2f} s | {sharing[name]:.1f} | {len(answers)} "
            f"| {len(errors)} | {wrong} |"
        )
        if errors:
            print(f"first error: {errors[0]}", file=sys.stderr)
    print("\n| ratio | measured | aim |\n|---|---|---|")
    ratio = speed["shared calls"] / speed["one at a time"]
    print(f"| requests per second: shared calls / one at a time | {ratio:.2f} | at least 1.5 |")


if __name__ == "__main__":
    sys.exit(main())
