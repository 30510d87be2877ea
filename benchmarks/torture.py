"""Is anything lost? Work that is killed with SIGKILL, starved of disk or damaged must end as if nothing had happened.

    python benchmarks/torture.py --runs 200 --seed 0 --out runs/torture

A run is one command with a torment: killed at random moments while it trains, while it writes a checkpoint, while it
distils, prepares or measures; the same on two ranks of torchrun; on a disk that fills up; with a flipped bit in its
newest checkpoint or in a figure that it has measured. The same command is then given again, until it comes to its end.
A run passes if what it leaves, file by file, is what an uninterrupted run leaves, and nothing else: no half-written
file. A full disk must be told in one sentence that names the place, and a damaged file must be named.

What there is to do is a function of the seed; only the moments of the kills are those of the clock. Every finished run
is in OUT/torture.json, and the same command goes on after the last one. One-process commands run in a fork of this
program, which has the libraries loaded; what they are compared with comes from `python -m multimdm` itself.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from multimdm._files import write_text
from torture_commands import MODEL, PATIENCE, RECIPE, Running, Work, alone, descendants, furnish, works
from torture_leavings import difference, leavings, named, walk

ROUND = (
    *("train", "save", "prepare", "measure", "flip", "train", "save", "ranks", "full", "prepare"),
    *("save", "train", "distill", "prepare", "flip", "measure", "full", "save", "train", "prepare"),
)
"""Twenty runs; the next twenty are of the same kinds."""
MANY = 3
"""Kills of one run, at most."""


@dataclass
class Report:
    """What came of one run."""

    number: int
    kind: str
    work: str
    """The command that was tormented: train, two ranks, distill, prepare, measure."""
    kills: list[str] = field(default_factory=list)
    """What it was at when it was killed: before its first result, working, writing."""
    told: str = ""
    """What it said about a full disk or a damaged file."""
    wrong: str = ""
    """Empty if all is as it must be."""
    seconds: float = 0.0


class Torture:
    """Runs and their record."""

    def __init__(self, place: Path, seed: int) -> None:
        self.place, self.seed, self.home = place, seed, place / "home"
        self.path = place / "torture.json"
        self.record = self._opened()
        furnish(self.home)
        self.works = works(self.home)
        self.usual: dict[str, float] = {}
        """Seconds that a command takes, as far as it is known."""

    def _opened(self) -> dict[str, Any]:
        if not self.path.exists():
            self.place.mkdir(parents=True, exist_ok=True)
            return {"seed": self.seed, "uninterrupted": {}, "runs": []}
        record = json.loads(self.path.read_text(encoding="utf-8"))
        if record["seed"] != self.seed:
            raise ValueError(f"{self.path} is of --seed {record['seed']}, not {self.seed}; choose another --out")
        return record

    def _keep(self) -> None:
        write_text(self.path, json.dumps(self.record, indent=1) + "\n")

    def expected(self, work: Work) -> dict[str, str]:
        """What an uninterrupted run leaves: made once, by the command itself."""
        known = self.record["uninterrupted"]
        if work.name not in known:
            out = self._example(work)
            shutil.rmtree(out.parent, ignore_errors=True)
            out.parent.mkdir(parents=True)
            if work.begins_with_a_model and not (self.home / "model").is_dir():
                command = [sys.executable, "-c", MODEL, json.dumps(RECIPE), str(self.home / "model")]
                subprocess.run(command, check=True, env=alone())
            running = Running(work, out, out.with_name("said"), plain=True)
            if running.wait() != 0:
                raise RuntimeError(f"{work.name} fails without any torment: {running.text[-2000:]}")
            known[work.name] = leavings(out)
            self._keep()
        return known[work.name]

    def _example(self, work: Work) -> Path:
        return self.place / "uninterrupted" / work.name.replace(" ", "-") / "out"

    def run(self, number: int) -> Report:
        """One run, from nothing to the end."""
        rng, kind = random.Random(f"{self.seed} {number}"), ROUND[number % len(ROUND)]
        torment, work = self._torment(kind, number)
        report = Report(number, kind, work.name)
        place, begun = self.place / f"run-{number:04d}", time.monotonic()
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        try:
            expected = self.expected(work)
            begun = time.monotonic()
            report.wrong = torment(work, place, rng, report, expected)
        except (RuntimeError, OSError) as error:
            report.wrong = f"{type(error).__name__}: {error}"
        report.seconds = round(time.monotonic() - begun, 2)
        if not report.wrong:
            shutil.rmtree(place)  # what went wrong can be looked at
        self.record["runs"].append(asdict(report))
        self._keep()
        return report

    def _torment(self, kind: str, number: int) -> tuple[Callable[..., str], Work]:
        again = number // len(ROUND) % 2 == 0  # every other round
        plain = {"train": "train", "save": "train", "distill": "distill", "prepare": "prepare", "measure": "measure"}
        if kind == "full":
            return self.starved, self.works["train" if number % len(ROUND) == 8 else "prepare" if again else "measure"]
        if kind == "flip":
            return self.damaged, self.works["train" if number % len(ROUND) == 4 or again else "measure"]
        if kind == "ranks":
            return self.killed, self.works["two ranks"]
        return (self.killed_writing if kind == "save" else self.killed), self.works[plain[kind]]

    # -- SIGKILL

    def killed(self, work: Work, place: Path, rng: random.Random, report: Report, expected: dict[str, str]) -> str:
        """At moments of the clock."""
        out, said = place / "out", place / "said"
        later = work.ranks > 1  # launchers take seconds before there is anything to kill
        wrong = self._kills(work, out, said, rng, report, 1 if later else rng.randint(1, MANY), later)
        return wrong or self.finished(work, out, said, expected)

    def _kills(
        self, work: Work, out: Path, said: Path, rng: random.Random, report: Report, wanted: int, later: bool
    ) -> str:
        """So many, one attempt after the other; `later`: not before there is a first result."""
        span = self.usual.get(work.name, 2.0)
        while len(report.kills) < wanted:
            running = Running(work, out, said)
            if later:
                self._until(running, lambda: work.begun(out))
            self._until(running, lambda: False, rng.uniform(0, span))
            if self._kill(running, work, out, rng, report) is None:
                span *= 0.6  # it was quicker than that: from the beginning, and sooner
                if running.wait() != 0:
                    return f"it fails: {running.text[-600:]}"
                shutil.rmtree(out)
                report.kills.clear()
        return ""

    def killed_writing(
        self, work: Work, place: Path, rng: random.Random, report: Report, expected: dict[str, str]
    ) -> str:
        """While a checkpoint is half-written: one of the first few that this attempt writes."""
        out, said, wanted = place / "out", place / "said", rng.randint(1, MANY)
        while len(report.kills) < wanted:
            running = Running(work, out, said)
            for number in range(rng.randint(1, 3)):
                if number:
                    self._until(running, lambda: not self._checkpointing(out), pause=0.0002)
                self._until(running, lambda: self._checkpointing(out), pause=0.0002)
            time.sleep(rng.uniform(0, 0.006))
            if self._kill(running, work, out, rng, report) is None:
                break
        return self.finished(work, out, said, expected)

    @staticmethod
    def _checkpointing(out: Path) -> bool:
        return any(".partial-" in name for name in named(out / "checkpoints", "."))

    @staticmethod
    def _until(running: Running, holds: Callable[[], bool], seconds: float = PATIENCE, pause: float = 0.002) -> None:
        """Wait for something, or for the end of the command."""
        end = time.monotonic() + seconds
        while running.poll() is None and not holds() and time.monotonic() < end:
            time.sleep(pause)

    def _kill(self, running: Running, work: Work, out: Path, rng: random.Random, report: Report) -> str | None:
        """Kill it, and write down what it was at; None if it had come to its end."""
        ranks = descendants(running.pid) if work.ranks > 1 else []
        running.kill(rng.choice(ranks) if ranks and rng.random() < 0.5 else None)
        if running.wait() == 0:
            return None
        at = "writing" if work.writing(out) else "working" if work.begun(out) else "before its first result"
        report.kills.append(at)
        return at

    def finished(self, work: Work, out: Path, said: Path, expected: dict[str, str], allowed: str = "") -> str:
        """The same command once more; what is wrong with what it leaves."""
        begun, running = time.monotonic(), Running(work, out, said)
        if running.wait() != 0:
            return f"the same command again fails: {running.text[-600:]}"
        took = time.monotonic() - begun
        self.usual[work.name] = max(took, 0.7 * self.usual.get(work.name, took))  # a resumed one is quicker
        return difference(out, expected, allowed)

    # -- a full disk

    def starved(self, work: Work, place: Path, rng: random.Random, report: Report, expected: dict[str, str]) -> str:
        """A disk with a part of the room that it takes; then one with enough."""
        said = place.parent / f"{place.name}.said"
        sizes = [(directory / name).stat().st_size for directory, name in walk(self._example(work))]
        share = rng.uniform(0.05, 0.95)
        try:
            with small_disk(place / "disk", int(share * sum(sizes))) as disk:
                if disk.limit is not None:
                    disk = Disk(disk.path, int(share * max(sizes)), disk.grow)
                out = disk.path / "out"
                running = Running(work, out, said, limit=disk.limit)
                code, text = running.wait(), running.text
                if code != 0:
                    last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
                    report.told = last
                    if code != 2 or "Traceback" in text or str(disk.path) not in last:
                        return f"a full disk ends with {code} and without a sentence that names it: {text[-600:]}"
                disk.grow()
                return self.finished(work, out, said, expected)
        finally:
            said.unlink(missing_ok=True)

    # -- damage

    def damaged(self, work: Work, place: Path, rng: random.Random, report: Report, expected: dict[str, str]) -> str:
        """A bit of its newest result is flipped while it is down."""
        out, said = place / "out", place / "said"
        wrong = self._kills(work, out, said, rng, report, 1, later=True)
        if wrong:
            return wrong
        files = _newest(out)
        victim = rng.choice(files)
        content = bytearray(victim.read_bytes())
        bit = rng.randrange(8 * len(content))
        content[bit // 8] ^= 1 << bit % 8
        victim.write_bytes(content)
        wrong = self.finished(work, out, said, expected, allowed="aside-")
        text = said.read_text(encoding="utf-8", errors="replace")
        sentences = [line for line in text.splitlines() if "damaged" in line and str(victim) in line]
        report.told = sentences[0] if sentences else ""
        if not wrong and not sentences:
            wrong = f"bit {bit} of {victim.relative_to(place)} was flipped, and nobody said so: {text[-600:]}"
        return wrong


def _newest(out: Path) -> list[Path]:
    """The files of the newest checkpoint, or a figure that was measured."""
    steps = named(out / "checkpoints", "step-")
    if steps:
        newest = out / "checkpoints" / steps[-1]
        return sorted(directory / name for directory, name in walk(newest))
    return [out / "points" / name for name in named(out / "points", "")]


@dataclass(frozen=True)
class Disk:
    """A place with little room."""

    path: Path
    limit: int | None
    """Bytes of a file, where no disk of our own can be had."""
    grow: Callable[[], None]


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[Disk]:
    """A file system of this size in memory, which needs root; else files that may not grow beyond a limit."""
    path.mkdir(parents=True)
    size = max(size, 16_384)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        yield Disk(path, size, lambda: None)
        return

    def grow() -> None:
        subprocess.run(["mount", "-o", "remount,size=256m", str(path)], check=True, capture_output=True)

    try:
        yield Disk(path, None, grow)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True, capture_output=True)


# --------------------------------------------------------------------- telling


def table(runs: list[dict[str, Any]]) -> str:
    """By torment and command."""
    lines = [
        "| torment | command | runs | kills | while writing | before a first result | told | failed | s per run |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for kind, work in sorted({(one["kind"], one["work"]) for one in runs}):
        here = [one for one in runs if (one["kind"], one["work"]) == (kind, work)]
        kills = [at for one in here for at in one["kills"]]
        told, failed = sum(bool(one["told"]) for one in here), sum(bool(one["wrong"]) for one in here)
        seconds = sum(one["seconds"] for one in here) / len(here)
        lines.append(
            f"| {WORDS[kind]} | {work} | {len(here)} | {len(kills)} | {kills.count('writing')} "
            f"| {kills.count('before its first result')} | {told} | {failed} | {seconds:.1f} |"
        )
    kills = sum(len(one["kills"]) for one in runs)
    minutes = sum(one["seconds"] for one in runs) / 60
    failed = sum(bool(one["wrong"]) for one in runs)
    lines.append(f"\n{len(runs)} runs, {kills} kills, {failed} failed; {minutes:.1f} min")
    return "\n".join(lines)


WORDS = {
    "train": "killed at any moment",
    "distill": "killed at any moment",
    "prepare": "killed at any moment",
    "measure": "killed at any moment",
    "ranks": "killed, all ranks or one",
    "save": "killed while it saves",
    "full": "a full disk",
    "flip": "killed, a bit flipped",
}


def main() -> int:
    """Run what is still to be run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/torture"))
    parser.add_argument("--kinds", nargs="+", choices=sorted(WORDS), help="only these torments")
    options = parser.parse_args()
    os.environ.update(alone())
    torture = Torture(options.out.resolve(), options.seed)
    done = {one["number"] for one in torture.record["runs"]}
    left = [n for n in range(options.runs) if n not in done]
    left = [n for n in left if options.kinds is None or ROUND[n % len(ROUND)] in options.kinds]
    begun = time.monotonic()
    for count, number in enumerate(left, 1):
        report = torture.run(number)
        rest = (time.monotonic() - begun) / count * (len(left) - count) / 60
        state = report.wrong or ("as if nothing had happened" + (f"; {report.told}" if report.told else ""))
        print(
            f"{number + 1} of {options.runs}, {rest:.0f} min left: {WORDS[report.kind]} ({report.work}, "
            f"{len(report.kills)} kills): {state}",
            file=sys.stderr,
            flush=True,
        )
    runs = torture.record["runs"]
    print(table(runs))
    for one in runs:
        if one["wrong"]:
            print(f"run {one['number']} ({one['kind']}, {one['work']}): {one['wrong']}")
    return 1 if any(one["wrong"] for one in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
