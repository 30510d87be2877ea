"""Write the bill of materials: every package that multimdm needs at run time, as CycloneDX 1.5.

    python tools/sbom.py runs/sbom.cdx.json

It is made of what is installed, from our own requirements on, with the extras that users install; tools of developers
are left out. Equal environments give equal files: there is no time and no random number in it.
"""

import json
import sys
import uuid
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.requirements import Requirement

from audit import normalised

EXTRAS = ("adapt", "eval", "hf", "serve", "train")
_OURS = "multimdm"


def needed(root: Distribution, extras: tuple[str, ...]) -> dict[str, set[str]]:
    """Package -> what it needs directly; all that the root needs with these extras, and the root itself."""
    found: dict[str, set[str]] = {}
    seen: set[tuple[str, tuple[str, ...]]] = set()
    waiting = [(root, tuple(sorted(extras)))]
    while waiting:
        package, wanted = waiting.pop()
        name = normalised(package.metadata["Name"])
        found.setdefault(name, set())
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        for requirement in _requirements(package, wanted):
            need = normalised(requirement.name)
            if need != name:  # an extra of ours may name others of ours
                found[name].add(need)
            waiting.append((distribution(requirement.name), tuple(sorted(requirement.extras))))
    return found


def _requirements(package: Distribution, extras: tuple[str, ...]) -> Iterator[Requirement]:
    """Those that hold here."""
    for text in package.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": one}) for one in ("", *extras)):
            yield requirement


def sbom(found: Mapping[str, set[str]]) -> dict[str, Any]:
    """The document."""
    packages = {name: distribution(name) for name in sorted(found)}
    references = {name: f"pkg:pypi/{name}@{quote(one.version)}" for name, one in packages.items()}
    components = [_component(name, references[name], one) for name, one in packages.items()]
    ours = next(one for one in components if one["name"] == _OURS)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, ' '.join(references.values()))}",
        "version": 1,
        "metadata": {"component": {**ours, "type": "application"}},
        "components": [one for one in components if one is not ours],
        "dependencies": [
            {"ref": references[name], "dependsOn": sorted(references[need] for need in found[name])}
            for name in sorted(found)
        ],
    }


def _component(name: str, reference: str, package: Distribution) -> dict[str, Any]:
    entry = {"type": "library", "bom-ref": reference, "name": name, "version": package.version, "purl": reference}
    licence = _licence(package)
    return entry if licence is None else {**entry, "licenses": [licence]}


def _licence(package: Distribution) -> dict[str, Any] | None:
    """As the package says it: an expression, a short name, or a classifier."""
    metadata = package.metadata
    if "License-Expression" in metadata:
        return {"expression": metadata["License-Expression"]}
    name = next(iter(metadata.get_all("License") or ()), "")
    if not name or "\n" in name or len(name) > 100:  # some have the whole text there
        kinds = [one for one in metadata.get_all("Classifier") or () if one.startswith("License ::")]
        name = kinds[0].rpartition(" :: ")[2] if kinds else ""
    return {"license": {"name": name}} if name else None


def main() -> None:
    """Write the file that is named."""
    target = Path(sys.argv[1])
    document = sbom(needed(distribution(_OURS), EXTRAS))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"wrote {target}: {len(document['components'])} packages")


if __name__ == "__main__":
    main()
