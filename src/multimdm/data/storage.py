"""Prepared data on disk: what the files are, and writing them in blocks.

tokens.bin   [N, L] ids, uint16 or uint32, little-endian
lengths.bin  [N]    valid positions of each sequence, uint32; padding follows them
starts.bin   [N]    of --layout pairs: where the answer of each sequence begins, uint32
counts.bin   [V]    how often each token occurs in valid positions, int64
tokenizer.json, tokenizer_config.json, manifest.json
cells/       where a teacher has the numbers of the tokens, if it was asked (`cells.py`)
"""

import hashlib
from pathlib import Path
from typing import Literal

import numpy as np

from multimdm._inert import inert
from multimdm.data.encoding import token_dtype
from multimdm.data.manifest import Manifest
from multimdm.data.packing import Sequences
from multimdm.data.tokenizer import Tokenizer

LENGTH_DTYPE, COUNT_DTYPE = np.dtype("<u4"), np.dtype("<i8")

CELLS = "cells"
"""The folder with cells of the tokens (`cells.py`), one below it for each teacher."""
_TOKENIZER_FILES = ["tokenizer.json", "tokenizer_config.json"]
OUR_FILES = frozenset(
    ["tokens.bin", "lengths.bin", "starts.bin", "counts.bin", "manifest.json", *_TOKENIZER_FILES, CELLS]
)
"""All that a directory of prepared data holds. Cells go with the tokens that they belong to."""


class SequenceWriter:
    """Appends sequences to tokens.bin and lengths.bin and counts their tokens."""

    def __init__(self, directory: Path, length: int, vocab_size: int, answers: bool = False) -> None:
        self.directory, self.length = directory, length
        self.dtype = token_dtype(vocab_size)
        self.sequences = 0
        self.token_counts = np.zeros(vocab_size, dtype=COUNT_DTYPE)
        self._hash = hashlib.sha256()
        self._tokens = open(directory / "tokens.bin", "wb")  # noqa: SIM115 (closed by __exit__)
        self._lengths = open(directory / "lengths.bin", "wb")  # noqa: SIM115
        self._starts = open(directory / "starts.bin", "wb") if answers else None  # noqa: SIM115

    def __enter__(self) -> "SequenceWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._tokens.close()
        self._lengths.close()
        if self._starts is not None:
            self._starts.close()

    @property
    def dtype_name(self) -> Literal["<u2", "<u4"]:
        """The type of the tokens, as the manifest has it."""
        return "<u2" if self.dtype.itemsize == 2 else "<u4"

    def write(self, sequences: Sequences) -> None:
        """Append a block of sequences."""
        ids, lengths = sequences.ids, sequences.lengths
        full = bool((lengths == self.length).all())
        valid = ids.ravel() if full else ids[np.arange(self.length) < lengths[:, None]]
        self.token_counts += np.bincount(valid, minlength=len(self.token_counts))
        data = np.ascontiguousarray(ids, dtype=self.dtype).data
        self._hash.update(data)
        self._tokens.write(data)
        self._lengths.write(lengths.astype(LENGTH_DTYPE).data)
        if self._starts is not None:
            assert sequences.starts is not None
            self._starts.write(sequences.starts.astype(LENGTH_DTYPE).data)
        self.sequences += len(ids)

    def finish(self) -> str:
        """Write the histogram; the hash of the tokens."""
        self.token_counts.tofile(self.directory / "counts.bin")
        return self._hash.hexdigest()


def verified_manifest(directory: Path) -> Manifest:
    """The manifest, once the files have the sizes and the tokenizer the fingerprint that it says."""
    if not directory.is_dir():
        raise ValueError(f"{directory}: there is no such directory; make it with multimdm prepare")
    manifest = Manifest.read(directory)
    N, L = manifest.counts.sequences, manifest.length
    sizes = {
        "tokens.bin": N * L * np.dtype(manifest.dtype).itemsize,
        "lengths.bin": N * LENGTH_DTYPE.itemsize,
        "counts.bin": manifest.vocab_size * COUNT_DTYPE.itemsize,
    }
    if manifest.layout == "pairs":
        sizes["starts.bin"] = N * LENGTH_DTYPE.itemsize
    for name, size in sizes.items():
        path = directory / name
        if not path.is_file():
            raise ValueError(f"{path} is missing; prepare the data again")
        if path.stat().st_size != size:
            raise ValueError(
                f"{path} has {path.stat().st_size:,} bytes, but the manifest says {size:,}; prepare the data again"
            )
    fingerprint = Tokenizer.saved_fingerprint(directory)
    if fingerprint != manifest.tokenizer_fingerprint:
        theirs = inert(manifest.tokenizer_fingerprint)[:12]
        raise ValueError(
            f"{directory}: its tokenizer files are not those the data were made with (fingerprint "
            f"{fingerprint[:12]}, the manifest says {theirs}); prepare the data again"
        )
    return manifest
