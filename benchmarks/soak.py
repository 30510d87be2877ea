"""Does a server stand hostile clients, without its honest ones noticing?

    python benchmarks/serving.py --soak 30
    python benchmarks/serving.py --soak 30 --malformed 100000 --schemathesis PATH/TO/schemathesis

64 clients on the loopback. 16 are honest: they ask, compare the answer with the library's for the same seed, think for
a moment and ask again. 48 are not: streams, readers that take a stream byte by byte or not at all, clients that leave
in the middle, malformed bodies (made by hypothesis and schemathesis), connections that say nothing or half of a
request, heads of many kilobytes. Honest clients are alone with the server for a part of every minute, and their latency
then is what their latency among the others is compared with, so that a busy spell of the machine hits both alike.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from soak_bodies import by_hypothesis, by_schemathesis, replayed
from soak_clients import CROWD, Account, Crowd

PER_MINUTE = 100_000 / 30
"""Malformed bodies, unless told otherwise."""


@dataclass(frozen=True)
class Size:
    """Of a process, now."""

    megabytes: float
    threads: int
    descriptors: int

    @classmethod
    def of(cls, pid: int) -> "Size":
        """As the system has it."""
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        told = dict(line.split(":", 1) for line in status.splitlines())
        return cls(
            int(told["VmRSS"].split()[0]) / 1024, int(told["Threads"]), len(list(Path(f"/proc/{pid}/fd").iterdir()))
        )


@dataclass
class Outcome:
    """Of a soak."""

    minutes: float
    account: Account
    before: Size
    """Of the server before the first client."""
    sizes: list[Size]
    """With honest clients alone: before the others first came, and after every time of theirs."""
    after: Size
    """After the last client."""
    log: str
    """What the server wrote."""
    num_bodies: int
    """Malformed ones that were to be sent."""
    corpus: dict[str, int] = field(default_factory=dict)
    """Different malformed bodies before they were changed, by who made them."""
    schemathesis: str = ""

    def ratio(self, share: float) -> float:
        """Latency among others / alone, at a quantile."""
        alone, mixed = (_quantile(self.account.latencies[phase], share) for phase in ("alone", "mixed"))
        return mixed / alone

    @property
    def laws(self) -> dict[str, tuple[str, str, bool]]:
        """What is measured, what it is to be, whether it is."""
        # A quarter of the way: pools of threads and of memory fill up to their bounds first, and not all at once.
        warm, last = self.sizes[max(1, len(self.sizes) // 4)], self.sizes[-1]
        faults = self.account.wrong
        tracebacks = self.log.count("Traceback")
        return {
            "answers of 500 and more, lost ones, other than the library's": (str(len(faults)), "0", not faults),
            "malformed bodies that were not sent": _law(self.num_bodies - self.account.requests["malformed"], 0),
            "tracebacks in the server's log": (str(tracebacks), "0", tracebacks == 0),
            "latency of honest clients, p50, mixed / alone": _law(self.ratio(0.5), 2.0),
            "the same, p95": _law(self.ratio(0.95), 2.0),
            "memory, last / a quarter of the way": _law(last.megabytes / warm.megabytes, 1.1),
            "threads, last - a quarter of the way": _law(last.threads - warm.threads, 0),
            "descriptors, last - a quarter of the way": _law(last.descriptors - warm.descriptors, 0),
            "descriptors, after all clients - before them": _law(self.after.descriptors - self.before.descriptors, 0),
        }


def _law(measured: float, most: float) -> tuple[str, str, bool]:
    return f"{measured:.3g}", f"at most {most:g}", measured <= most


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[int(share * (len(ordered) - 1))]


def soak(
    served: Any, expected: dict[int, str], request: Callable[[int], dict[str, Any]], options: argparse.Namespace
) -> Outcome:
    """`served` has the server's port and pid."""
    corpus = {"hypothesis": by_hypothesis(options.bodies, seed=0)}
    if options.schemathesis is not None:
        with urlopen(f"http://127.0.0.1:{served.port}/openapi.json", timeout=10) as answer:
            described = answer.read().decode()
        # Drawn five times as slowly, and for each of three paths.
        corpus["schemathesis"] = by_schemathesis(options.schemathesis, described, options.bodies // 15)
    bodies = replayed([body for made in corpus.values() for body in made], seed=0)
    num_bodies = round(PER_MINUTE * options.soak) if options.malformed is None else options.malformed
    crowd = Crowd(served.port, expected, request, bodies, num_bodies, pace=options.pace)
    sizes, begun = list[Size](), time.monotonic()
    before = Size.of(served.pid)

    def watch(left: float) -> None:
        sizes.append(Size.of(served.pid))
        seen = crowd.account
        print(
            f"{left / 60:.1f} min left; {sum(seen.requests.values()):,} requests, {seen.compared:,} answers compared, "
            f"{len(seen.wrong)} wrong; {sizes[-1].megabytes:.0f} MB, {sizes[-1].threads} threads, "
            f"{sizes[-1].descriptors} descriptors",
            file=sys.stderr,
            flush=True,
        )

    asyncio.run(crowd.soak(60 * options.soak, watch))
    minutes = (time.monotonic() - begun) / 60
    time.sleep(2)  # for the server to see that all have left
    after = Size.of(served.pid)
    told = _schemathesis(options.schemathesis, served.port, 6 * options.soak, crowd.account)
    log = served.log.read_text(errors="replace")
    made = {name: len(several) for name, several in corpus.items()}
    return Outcome(minutes, crowd.account, before, sizes, after, log, num_bodies, made, told)


def _schemathesis(program: str | None, port: int, seconds: float, account: Account) -> str:
    """Its tests of the server's own OpenAPI description, right and wrong requests, for a tenth of the time."""
    if program is None:
        return ""
    command = [
        str(Path(program).resolve()),
        "run",
        f"http://127.0.0.1:{port}/openapi.json",
        "--checks",
        "not_a_server_error",
    ]
    command += ["--mode", "all", "--phases", "coverage,fuzzing", "--max-time", str(max(1, int(seconds)))]
    command += ["--continue-on-failure", "--no-color"]
    with tempfile.TemporaryDirectory() as directory:  # it keeps a cache where it is started
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=directory)
    if done.returncode != 0:
        account.wrong.append(f"schemathesis ends with {done.returncode}")
    return done.stdout


def tell(outcome: Outcome) -> bool:
    """Tables; whether all laws hold."""
    seen = outcome.account
    print(f"{outcome.minutes:.1f} min, {sum(CROWD.values())} clients\n")
    print("| clients | number | requests | answers by status |\n|---|---|---|---|")
    for kind, number in CROWD.items():
        statuses = {status: count for (who, status), count in sorted(seen.statuses.items()) if who == kind}
        told = ", ".join(f"{status}: {count:,}" for status, count in statuses.items())
        print(f"| {kind} | {number} | {seen.requests[kind]:,} | {told or '-'} |")
    made = ", ".join(f"{number:,} by {name}" for name, number in outcome.corpus.items())
    print(f"\nmalformed bodies before they were changed: {made}")
    print(f"{seen.compared:,} answers compared with the library's\n")
    for phase, latencies in seen.latencies.items():
        quantiles = ", ".join(f"p{100 * share:.0f} {_quantile(latencies, share):.3f} s" for share in (0.5, 0.95, 0.99))
        print(
            f"honest clients, {phase}: {len(latencies):,} answers, {quantiles}, mean {statistics.mean(latencies):.3f} s"
        )
    for when, size in {"before": outcome.before, "last": outcome.sizes[-1], "after": outcome.after}.items():
        print(f"server, {when}: {size.megabytes:.0f} MB, {size.threads} threads, {size.descriptors} descriptors")
    print("memory by cycle: " + ", ".join(f"{size.megabytes:.0f}" for size in outcome.sizes) + " MB\n")
    print("| law | measured | aim |\n|---|---|---|")
    for name, (measured, aim, holds) in outcome.laws.items():
        print(f"| {name} | {measured}{'' if holds else ' (!)'} | {aim} |")
    for text in seen.wrong[:20]:
        print(text)
    if "Traceback" in outcome.log:
        print(outcome.log[outcome.log.index("Traceback") :][:3000])
    if outcome.schemathesis:
        print("schemathesis:\n" + outcome.schemathesis[-1500:])
    return all(holds for _, _, holds in outcome.laws.values())
