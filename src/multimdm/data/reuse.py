"""Is what lies there already what is asked for?"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from multimdm.data.manifest import NAME, Manifest, SourceStamp
from multimdm.data.options import PrepareOptions
from multimdm.data.sources import Source
from multimdm.data.storage import OUR_FILES, verified_manifest


@dataclass(frozen=True)
class Request:
    """What is asked for, and what it is made of."""

    options: dict[str, Any]
    tokenizer_files_sha256: str | None
    sources: list[SourceStamp]


def existing(out: Path) -> dict[str, Path]:
    """Prepared data in a directory, by split ('all' if nothing is held out); anything else in it is an error."""
    if not out.exists():
        return {}
    if not out.is_dir():
        raise ValueError(f"--out must be a directory; {out} is a file")
    found = {split: out / split for split in ("train", "valid") if (out / split / NAME).is_file()}
    if (out / NAME).is_file():
        found = {"all": out}
    others = _others(out, found)
    if others:
        raise ValueError(
            f"--out {out}: the directory holds something else ({others[0]}); choose another, or move it away"
        )
    return found


def _others(out: Path, found: dict[str, Path]) -> list[str]:
    """What lies in the directory and is not ours: nothing of others is ever replaced."""
    inside = [path for path in out.iterdir() if path not in found.values()] if "all" not in found else []
    for directory in found.values():
        inside += [path for path in directory.iterdir() if path.name not in OUR_FILES]
    return sorted(str(path) for path in inside)


def as_recorded(options: PrepareOptions) -> dict[str, Any]:
    """The options as JSON gives them back."""
    values = {field: value for field, value in asdict(options).items() if field in PrepareOptions.__dataclass_fields__}
    return json.loads(json.dumps(values))


def changes(
    manifest: Manifest | Request, options: PrepareOptions, sources: list[Source], tokenizer_hash: str | None
) -> list[str]:
    """What is asked for now and was not then, in words; empty if the data can be used again.

    Local files and tokenizer directories are looked at; a name on the Hub is taken to mean what it meant.
    """
    now, then = as_recorded(options), {**as_recorded(PrepareOptions()), **manifest.options}  # options may be newer
    changed = [
        f"--{name.replace('_', '-')} was {json.dumps(then.get(name))}, is {json.dumps(value)}"
        for name, value in now.items()
        if then.get(name) != value
    ]
    if changed:
        return changed
    if manifest.tokenizer_files_sha256 != tokenizer_hash:
        return [f"the tokenizer files in {options.tokenizer} have changed"]
    before = {stamp.path: stamp for source in manifest.sources for stamp in source.files}
    present = {stamp.path: stamp for source in sources for stamp in source.stamps()}
    changed = [f"{path} has gone" for path in before.keys() - present.keys()]
    changed += [f"{path} is new" for path in present.keys() - before.keys()]
    changed += [
        f"{path} has changed" for path in before.keys() & present.keys() if not present[path].unchanged(before[path])
    ]
    return sorted(changed)


def reusable(
    out: Path, options: PrepareOptions, sources: list[Source], tokenizer_hash: str | None
) -> dict[str, Manifest]:
    """The manifests of what lies in `out` if it is what is asked for, by split; empty if nothing lies there.

    Something else there is an error: replacing it has to be asked for.
    """
    found = existing(out)
    if not found:
        return {}
    try:
        manifests = {split: verified_manifest(path) for split, path in found.items()}
    except ValueError as error:
        raise ValueError(f"--out {out}: {error}, with --force") from error
    wanted = {"train", "valid"} if options.holds_out else {"all"}
    different = changes(next(iter(manifests.values())), options, sources, tokenizer_hash)
    if not different and manifests.keys() != wanted:
        different = ["a split has gone"]
    if different:
        raise ValueError(
            f"--out {out} holds data prepared otherwise ({'; '.join(different[:3])}); "
            "choose another directory, or replace it with --force"
        )
    return manifests
