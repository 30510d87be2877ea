"""A preparation that has not come to its end: what is kept of it, and whether the same is asked for again.

It lies beside the target, hidden, in `.NAME.unfinished`:

request.json   what was asked for, and what the sources were then
tokenizer-...  the tokenizer, loaded or trained, under its fingerprint
source-000/    the pieces of the first source (`pieces.py`), numbered, and so on
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pydantic
from filelock import FileLock

from multimdm._files import read_json, seal, whole_directory, write_text
from multimdm._locks import take_lock
from multimdm.data.manifest import SourceStamp
from multimdm.data.options import PrepareOptions
from multimdm.data.pieces import ENDING, Piece, read_piece
from multimdm.data.reuse import Request, as_recorded, changes
from multimdm.data.sources import Source, UnreachableError
from multimdm.data.tokenizer import Tokenizer

_LOCK = "lock"
_REQUEST = "request.json"
_TOKENIZER = "tokenizer-"
_END = "end"


class OtherWorkError(ValueError):
    """What is kept does not belong to what is asked for; it stays as it is."""


class Unfinished:
    """The directory of an unfinished preparation. Use `unfinished`."""

    def __init__(self, directory: Path, out: Path) -> None:
        self.directory, self._out = directory, out

    def request(
        self, options: PrepareOptions, sources: list[Source], tokenizer_hash: str | None, force: bool
    ) -> Request:
        """What was asked for when this began; something else now is an error, unless `force` begins anew."""
        found = self._recorded()
        different = [] if found is None else changes(found, options, sources, tokenizer_hash)
        if different and self.keeps_something and not force:
            raise OtherWorkError(
                f"--out {self._out}: an unfinished preparation is kept there, of something else "
                f"({'; '.join(different[:3])}); ask for what it was to go on with it, or begin anew with --force"
            )
        if found is not None and not different:
            return found
        self._clear()
        stamps = [SourceStamp(source.name, [stamp.hashed() for stamp in source.stamps()]) for source in sources]
        request = Request(as_recorded(options), tokenizer_hash, stamps)
        content = asdict(request)
        content["sha256"] = seal(content)
        write_text(self.directory / _REQUEST, json.dumps(content, indent=2) + "\n")
        return request

    def _recorded(self) -> Request | None:
        try:
            content = read_json(self.directory / _REQUEST)
            if content.pop("sha256", None) != seal(content):
                return None
            return pydantic.TypeAdapter(Request).validate_python(content)
        except ValueError:
            return None

    @property
    def keeps_something(self) -> bool:
        """Whether there is anything that need not be done again."""
        return any(self.directory.glob(f"{_TOKENIZER}*")) or any(self.directory.glob(f"source-*/*{ENDING}"))

    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer that was kept, if it is whole."""
        for path in self.directory.glob(f"{_TOKENIZER}*"):
            try:
                tokenizer = Tokenizer.load(path)
            except (ValueError, OSError):
                continue
            if path.name == _TOKENIZER + tokenizer.fingerprint:
                return tokenizer
        return None

    def tokenizer_directory(self, tokenizer: Tokenizer) -> Path:
        """Where a tokenizer is kept."""
        return self.directory / (_TOKENIZER + tokenizer.fingerprint)

    def keep_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Keep it for the next time, and for other processes."""
        with whole_directory(self.tokenizer_directory(tokenizer)) as directory:
            tokenizer.save(directory)

    def pieces(self, number: int, tokenizer: str) -> "SourcePieces":
        """The pieces of a source."""
        return SourcePieces(self.directory / f"source-{number:03d}", tokenizer)

    def _clear(self) -> None:
        for path in self.directory.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != _LOCK:
                path.unlink()


class SourcePieces:
    """The pieces of one source: the first `count` are there and whole."""

    def __init__(self, directory: Path, tokenizer: str) -> None:
        self.directory, self._tokenizer = directory, tokenizer
        directory.mkdir(exist_ok=True)
        self.count = self.documents = self.bytes_read = 0
        while self._there_and_whole(self.path(self.count)):
            self.take_up()
        whole = {self.path(number).name for number in range(self.count)}
        for path in directory.iterdir():
            if path.name not in {*whole, _END}:
                path.unlink()

    def _there_and_whole(self, path: Path) -> bool:
        if not path.exists():
            return False
        try:
            read_piece(path, self._tokenizer)
        except (ValueError, KeyError, OSError) as error:
            print(f"{path} cannot be used ({error}); its text and what follows is encoded again", file=sys.stderr)
            return False
        return True

    def take_up(self) -> Piece:
        """The next piece, which is there now."""
        piece = self.read(self.count)
        self.count += 1
        self.documents += len(piece.encoded)
        self.bytes_read = piece.end.bytes_read
        return piece

    def read(self, number: int) -> Piece:
        """One piece, read from its file."""
        return read_piece(self.path(number), self._tokenizer)

    def path(self, number: int) -> Path:
        """The file of a piece."""
        return self.directory / f"{number:06d}{ENDING}"

    @property
    def complete(self) -> bool:
        """Whether the source has no more than these."""
        end = self.directory / _END
        return end.exists() and end.read_text() == str(self.count)

    def complete_now(self) -> None:
        """Note that there are no more pieces."""
        write_text(self.directory / _END, str(self.count))


@contextmanager
def unfinished(out: Path) -> Iterator[Unfinished]:
    """The unfinished preparation of a directory, new or kept, for this process alone.

    It is gone when all went well, or when the fault lies in what was asked for, as a bad line in a source: what is kept
    would be of no use to any other request. Otherwise what is finished stays.
    """
    target = Path(os.path.realpath(out))
    directory = target.with_name(f".{target.name}.unfinished")
    lock = _locked(directory, out)
    work = Unfinished(directory, out)
    done = False
    try:
        yield work
        done = True
    except (OtherWorkError, UnreachableError):
        raise
    except ValueError:
        done = True
        raise
    finally:
        if done or not work.keeps_something:
            shutil.rmtree(directory, ignore_errors=True)
        lock.release()


def _locked(directory: Path, out: Path) -> FileLock:
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        try:
            lock = take_lock(directory / _LOCK)
        except FileNotFoundError:
            continue  # another process came to its end at this moment, and took the directory with it
        if lock is None:
            raise OtherWorkError(f"--out {out}: another process is preparing it; wait for its end")
        if (directory / _LOCK).exists():
            return lock
        lock.release()
