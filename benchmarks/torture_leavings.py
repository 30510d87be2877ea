"""What a command leaves in its directory, so that two runs can be compared file by file (torture.py)."""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

CLOCK = ("tokens_per_second", "seconds")
"""Of a record: what no two runs have alike."""
OF_THE_CLOCK = ("start", "cost")
"""Records that tell of nothing else."""


def leavings(out: Path) -> dict[str, str]:
    """File -> its hash, of all that a command leaves; records without what tells of the clock."""
    found = {}
    for directory, name in walk(out):
        path = directory / name
        content = path.read_bytes()
        if name == "metrics.jsonl":
            content = _timeless(content)
        found[str(path.relative_to(out))] = hashlib.sha256(content).hexdigest()
    return {**found, **dict.fromkeys(named(out.parent, f".{out.name}."), "beside it")}  # half-written, or unfinished


def _timeless(content: bytes) -> bytes:
    records = [json.loads(line) for line in content.splitlines()]
    kept = [{k: v for k, v in one.items() if k not in CLOCK} for one in records if one["kind"] not in OF_THE_CLOCK]
    return json.dumps(kept).encode()


def difference(out: Path, expected: dict[str, str], allowed: str = "") -> str:
    """Where a run differs from an uninterrupted one, in words; "" if nowhere. Damaged things may be set aside."""
    found = {name: seal for name, seal in leavings(out).items() if not (allowed and allowed in name)}
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            what = "is missing" if name not in found else "is left over" if name not in expected else "differs"
            return f"{name} {what}"
    return ""


def walk(out: Path) -> Iterator[tuple[Path, str]]:
    """Directory and name of every file."""
    for directory, _, names in os.walk(out):
        for name in names:
            yield Path(directory), name


def half_written(out: Path) -> list[str]:
    """Half-written directories beside it."""
    return [name for name in named(out.parent, f".{out.name}.") if "partial" in name or "old" in name]


def named(directory: Path, start: str) -> list[str]:
    """What lies in a directory under names that begin so; nothing if there is none."""
    try:
        return sorted(name for name in os.listdir(directory) if name.startswith(start))
    except OSError:
        return []
