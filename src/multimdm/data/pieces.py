"""Encoded documents on disk, piece by piece, until they are put together: what is in a piece need not be encoded again.

A piece is one file: a line of JSON that says what it holds, where in the source it ends, and the hashes of all this;
then the ids, the lengths of the documents and, of pairs, the lengths of the prompts; last what the tokenizer lost, if
it can lose something. The file appears whole or not at all.
"""

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from multimdm._files import seal
from multimdm.data.encoding import Encoded

_VERSION = 2
_LENGTHS = np.dtype("<i8")
ENDING = ".piece"


@dataclass(frozen=True)
class Place:
    """How far a source has been read."""

    part: int = 0
    """The number of the file that the place is in."""
    documents: int = 0
    """Documents of this file."""
    bytes_read: int = 0
    """Bytes of the whole source that are read."""
    last: str = ""
    """sha256 of the document before this place, by which a source that has changed is noticed."""


class Piece(NamedTuple):
    """Some documents of a source, and where it goes on behind them."""

    encoded: Encoded
    end: Place


def write_piece(path: Path, piece: Piece, tokenizer: str) -> None:
    """Write the file; `tokenizer` is the fingerprint of what encoded it."""
    ids, lengths, starts = piece.encoded.ids, piece.encoded.lengths, piece.encoded.starts
    body = ids.tobytes() + lengths.astype(_LENGTHS).tobytes()
    body += b"" if starts is None else starts.astype(_LENGTHS).tobytes()
    body += b"" if piece.encoded.lost is None else piece.encoded.lost.astype(_LENGTHS).tobytes()
    about: dict[str, Any] = {
        "version": _VERSION,
        "tokenizer": tokenizer,
        "dtype": ids.dtype.str,
        "tokens": len(ids),
        "documents": len(lengths),
        "pairs": starts is not None,
        "lost": piece.encoded.lost is not None,
        "end": asdict(piece.end),
        "body": hashlib.sha256(body).hexdigest(),
    }
    about["sha256"] = seal(about)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(json.dumps(about).encode() + b"\n" + body)
    os.replace(partial, path)


def read_piece(path: Path, tokenizer: str) -> Piece:
    """Read it back; a file that is damaged, or was encoded by another tokenizer, is a ValueError."""
    header, _, body = path.read_bytes().partition(b"\n")
    about = json.loads(header)
    if not isinstance(about, dict) or about.get("sha256") != seal(about):
        raise ValueError(f"{path}: what it says of itself is damaged")
    if (about["version"], about["tokenizer"]) != (_VERSION, tokenizer):
        raise ValueError(f"{path}: it is of another version of this program or of another tokenizer")
    if hashlib.sha256(body).hexdigest() != about["body"]:
        raise ValueError(f"{path}: its tokens are damaged")
    dtype = np.dtype(about["dtype"])
    ids = np.frombuffer(body, dtype, about["tokens"])
    numbers = np.frombuffer(body, _LENGTHS, offset=ids.nbytes)
    D = about["documents"]
    lengths, rest = numbers[:D], numbers[D:]
    starts, rest = (rest[:D], rest[D:]) if about["pairs"] else (None, rest)
    lost = rest.reshape(D, 2) if about["lost"] else None
    return Piece(Encoded(ids, lengths, starts, lost), TypeAdapter(Place).validate_python(about["end"]))
