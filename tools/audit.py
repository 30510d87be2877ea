"""Compare the pinned packages with known vulnerabilities, without a network.

    python tools/audit.py                      # constraints.txt against tools/advisories.json; part of `make check`
    python tools/audit.py --update all.zip     # renew tools/advisories.json from OSV's dump of PyPI

The dump is https://osv-vulnerabilities.storage.googleapis.com/PyPI/all.zip; of it, what concerns pinned packages is
kept. A finding is fixed by raising the pin; where there is nothing to raise it to, `accepted` says why it does no harm
here, and an acceptance that no longer matches a finding must go. That a package has no advisory means something only if
somebody has looked: `looks` says when, where, for which versions and what was found; a pin that none of them names is
a finding, too.
"""

import argparse
import json
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, NamedTuple

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[1]
ADVISORIES = ROOT / "tools" / "advisories.json"
_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;]+)")
NOT_PINNED = {"multimdm", "pip", "setuptools", "wheel"}
"""Ourselves, and what every environment has before anything is installed."""


_NO_FIX = "no version has it fixed: replace it, or say why it is accepted"


class Range(NamedTuple):
    """Versions from `introduced` on, before `fixed`, up to `last_affected`; without either, all later ones."""

    introduced: str = "0"
    fixed: str | None = None
    last_affected: str | None = None

    def holds(self, version: Version) -> bool:
        """Whether the version is one of them."""
        if version < Version(self.introduced):
            return False
        if self.fixed is not None and version >= Version(self.fixed):
            return False
        return self.last_affected is None or version <= Version(self.last_affected)


class Advisory(NamedTuple):
    """One vulnerability of one package."""

    id: str
    package: str
    ranges: tuple[Range, ...]

    def affects(self, version: Version) -> bool:
        """Whether a version has it."""
        return any(one.holds(version) for one in self.ranges)


def normalised(name: str) -> str:
    """As package indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_pins(text: str) -> dict[str, Version]:
    """Package -> version, of lines like name==version; anything else is an error."""
    pins = {}
    for line in text.splitlines():
        line = line.partition("#")[0].strip()
        if not line:
            continue
        found = _PIN.fullmatch(line)
        if found is None:
            raise ValueError(f"constraints.txt must pin name==version; got '{line}'")
        pins[normalised(found[1])] = Version(found[2])
    return pins


def read_advisories(data: Mapping[str, Any]) -> list[Advisory]:
    """As advisories.json has them."""
    return [
        Advisory(one["id"], normalised(one["package"]), tuple(Range(**part) for part in one["ranges"]))
        for one in data["advisories"]
    ]


def findings(pins: Mapping[str, Version], advisories: Sequence[Advisory], accepted: Mapping[str, str]) -> Iterator[str]:
    """What is wrong, in sentences."""
    hits = {one for one in advisories if one.package in pins and one.affects(pins[one.package])}
    for one in sorted(hits, key=lambda one: (one.package, one.id)):
        if one.id in accepted:
            continue
        fixes = [part.fixed for part in one.ranges if part.fixed is not None and part.holds(pins[one.package])]
        remedy = f"raise it to {fixes[0]}" if fixes else _NO_FIX
        yield f"{one.package} {pins[one.package]} has {one.id}; {remedy}"
    for name in sorted(accepted.keys() - {one.id for one in hits}):
        yield f"{name} is accepted, but no pinned package has it any more: take it out of tools/advisories.json"


def not_looked_into(pins: Mapping[str, Version], looks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Pins of which it is not known whether they have vulnerabilities; another version is another package."""
    known = {(normalised(name), Version(version)) for one in looks for name, version in one["packages"].items()}
    for name, version in sorted(pins.items()):
        if (name, version) not in known:
            yield f"nobody has looked for vulnerabilities of {name} {version}: --update, or look and say so in looks"


def not_audited(pins: Mapping[str, Version], installed: Mapping[str, str]) -> Iterator[str]:
    """Packages of this environment that are not what was audited."""
    for name, version in sorted(installed.items()):
        if name in NOT_PINNED:
            continue
        if name not in pins:
            yield f"{name} {version} is installed, but not pinned in constraints.txt"
        elif Version(Version(version).public) != pins[name]:
            yield f"{name} {version} is installed, but constraints.txt has {pins[name]}"


def installed_packages() -> dict[str, str]:
    """Package -> version, here."""
    return {normalised(one.metadata["Name"]): one.version for one in distributions()}


def from_osv(dump: Path, pins: Mapping[str, Version]) -> list[dict[str, Any]]:
    """The advisories of pinned packages, from OSV's zip of all of PyPI's."""
    found = []
    with zipfile.ZipFile(dump) as archive:
        for name in sorted(archive.namelist()):
            record = json.loads(archive.read(name))
            if "withdrawn" in record:
                continue
            for affected in record.get("affected", ()):
                package = affected.get("package", {})
                if package.get("ecosystem") == "PyPI" and normalised(package["name"]) in pins:
                    ranges = [part for one in affected.get("ranges", ()) for part in _ranges(one)]
                    ranges = ranges or [
                        {"introduced": version, "last_affected": version} for version in affected.get("versions", ())
                    ]
                    if ranges:
                        found.append({"id": record["id"], "package": normalised(package["name"]), "ranges": ranges})
    return found


def _ranges(given: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Events in a row as ranges; commits of repositories are no versions."""
    if given.get("type") != "ECOSYSTEM":
        return
    current: dict[str, str] = {}
    for event in given["events"]:
        if not _are_versions(event.values()):
            continue
        if "introduced" in event:
            if current:
                yield current
            current = dict(event)
        elif current:
            yield {**current, **event}
            current = {}
    if current:
        yield current


def _are_versions(values: Any) -> bool:
    try:
        return all(Version(value) is not None for value in values)
    except InvalidVersion:
        return False


def main() -> int:
    """0 if nothing is known."""
    parser = argparse.ArgumentParser(description="Compare the pinned packages with known vulnerabilities.")
    parser.add_argument("--update", type=Path, metavar="ALL_ZIP", help="OSV's dump of PyPI")
    parser.add_argument("--as-of", metavar="DATE", help="when the dump was fetched; needed with --update")
    options = parser.parse_args()
    pins = read_pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    data = json.loads(ADVISORIES.read_text(encoding="utf-8"))
    if options.update is not None:
        if options.as_of is None:
            parser.error("--update needs --as-of DATE")
        looked = {"on": options.as_of, "how": "OSV", "packages": {name: str(version) for name, version in pins.items()}}
        data |= {"as_of": options.as_of, "source": "OSV", "looks": [looked]}
        data |= {"advisories": from_osv(options.update, pins)}
        ADVISORIES.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    advisories = read_advisories(data)
    wrong = [*findings(pins, advisories, data["accepted"]), *not_looked_into(pins, data["looks"])]
    wrong += not_audited(pins, installed_packages())
    for sentence in wrong:
        print(f"audit: {sentence}", file=sys.stderr)
    print(
        f"audit: {len(pins)} pinned packages, {len(advisories)} advisories as of {data['as_of']}: "
        f"{len(wrong)} findings, {len(data['accepted'])} accepted"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
