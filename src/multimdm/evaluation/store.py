"""Finished results on disk, so that an interrupted comparison goes on where it stopped."""

import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from multimdm._files import seal, write_text
from multimdm._inert import inert_json
from multimdm.pipeline.ranks import agreed, current

_log = logging.getLogger(__name__)
_FORMAT = 3
"""Raised when the meaning of stored figures changes: older ones are then measured anew."""

Result = TypeVar("Result")


class Store:
    """Results by what they depend on: in memory, and in one file each if there is a directory.

    Ranks that share their work hold what the main one holds; it alone writes.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._held: dict[str, Any] = {}

    @property
    def lasting(self) -> bool:
        """Whether results outlive the process."""
        return self._directory is not None

    def remembered(self, kind: type[Result], depends_on: dict[str, Any], compute: Callable[[], Result]) -> Result:
        """The result that is there, or a new one. `kind` is a dataclass; `depends_on` is plain data."""
        found = self.known(kind, depends_on)
        if found is None:
            found = agreed(compute())
            request = _request(kind, depends_on)
            content = {"request": request, "result": asdict(found)}  # pyright: ignore[reportArgumentType]
            key = _key(request)
            self._write(key, {**content, "sha256": seal(content)})
            self._held[key] = found
        return found

    def known(self, kind: type[Result], depends_on: dict[str, Any]) -> Result | None:
        """The result if it is there; nothing is computed."""
        key = _key(_request(kind, depends_on))
        if key not in self._held:
            found = agreed(self._read(kind, key))
            if found is None:
                return None
            self._held[key] = found
        return self._held[key]

    def _read(self, kind: type[Result], key: str) -> Result | None:
        """None if there is nothing, or nothing that makes sense: it is then measured anew."""
        if self._directory is None or not self._path(key).is_file():
            return None
        try:
            content = json.loads(self._path(key).read_text(encoding="utf-8"))
            sealed = content["sha256"] == seal(content)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            sealed = False
        if not sealed:
            _log.warning("%s is damaged; what it held is measured anew", self._path(key))
            return None
        try:
            return TypeAdapter(kind).validate_python(content["result"])
        except ValidationError:  # of an older version, which did not measure all that we do
            return None

    def _write(self, key: str, content: dict[str, Any]) -> None:
        if self._directory is not None and current().is_main:
            self._directory.mkdir(parents=True, exist_ok=True)
            write_json(self._path(key), content)

    def _path(self, key: str) -> Path:
        assert self._directory is not None
        return self._directory / f"{key}.json"


def _request(kind: type, depends_on: dict[str, Any]) -> dict[str, Any]:
    return {"format": _FORMAT, "kind": kind.__name__, **depends_on}


def _key(request: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:24]


def write_json(path: Path, content: Any) -> None:
    """Write JSON whole or not at all, with nothing in it that a terminal would obey."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    write_text(path, inert_json(text) + "\n")
