"""Prepared data as training reads them: through the operating system's cache, nothing loaded before it is asked for."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor
from torch.utils.data import Dataset

from multimdm.data.manifest import Manifest
from multimdm.data.storage import COUNT_DTYPE, LENGTH_DTYPE, verified_manifest
from multimdm.data.tokenizer import Tokenizer


class Example(NamedTuple):
    """One sequence [L], or a batch of them [B, L]."""

    ids: Int64[Tensor, "*B L"]
    valid: Bool[Tensor, "*B L"]
    """What is not padding."""
    given: Bool[Tensor, "*B L"] | None = None
    """The prompts before answers, which are given and not learnt. What fills the rest of a sequence says where the
    answer ends, and belongs to it."""

    def __iter__(self) -> Iterator[Tensor]:
        """Over what there is: torch puts examples of a data set together field by field, and None is no field."""
        return iter((self.ids, self.valid) if self.given is None else (self.ids, self.valid, self.given))

    @property
    def counted(self) -> Bool[Tensor, "*B L"]:
        """What is neither padding nor given."""
        return self.valid if self.given is None else self.valid & ~self.given

    def rows(self, part: slice) -> "Example":
        """Some of the sequences of a batch."""
        return Example(self.ids[part], self.valid[part], None if self.given is None else self.given[part])

    def cut(self, length: int) -> "Example":
        """The first positions of every sequence."""
        given = None if self.given is None else self.given[..., :length]
        return Example(self.ids[..., :length], self.valid[..., :length], given)

    def with_padding(self) -> "Example":
        """The example with padding as a token like others."""
        return Example(self.ids, torch.ones_like(self.valid), self.given)

    def on(self, device: torch.device) -> tuple[Tensor, Tensor | None]:
        """Ids, and what is not padding: None if nothing is, which spares networks a mask."""
        valid = None if bool(self.valid.all()) else self.valid.to(device, non_blocking=True)
        return self.ids.to(device, non_blocking=True), valid


class PreparedData(Dataset[Example]):
    """A corpus that `multimdm prepare` wrote; `data[i]` is an `Example`, a map-style torch data set."""

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        """Use `PreparedData.open`."""
        self.directory, self.manifest = directory, manifest
        N, L = manifest.counts.sequences, manifest.length
        self.tokens: np.memmap = np.memmap(directory / "tokens.bin", np.dtype(manifest.dtype), "r", shape=(N, L))
        self.lengths: np.memmap = np.memmap(directory / "lengths.bin", LENGTH_DTYPE, "r", shape=(N,))
        self.starts: np.memmap | None = None
        """Where the answers of pairs begin."""
        if manifest.layout == "pairs":
            self.starts = np.memmap(directory / "starts.bin", LENGTH_DTYPE, "r", shape=(N,))
        self.counts: np.ndarray = np.fromfile(directory / "counts.bin", COUNT_DTYPE)

    @classmethod
    def open(cls, directory: str | Path) -> "PreparedData":
        """Open a directory; one that is incomplete or was tampered with is refused."""
        directory = Path(directory)
        return cls(directory, verified_manifest(directory))

    def __reduce__(self) -> tuple:
        return PreparedData.open, (self.directory,)  # workers map the files themselves; nothing is copied

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int | slice | list[int] | np.ndarray) -> Example:
        ids = torch.from_numpy(np.asarray(self.tokens[index], dtype=np.int64))
        lengths = torch.from_numpy(np.asarray(self.lengths[index], dtype=np.int64))
        place = torch.arange(ids.shape[-1])
        if self.starts is None:
            return Example(ids, place < lengths[..., None])
        starts = torch.from_numpy(np.asarray(self.starts[index], dtype=np.int64))
        return Example(ids, place < lengths[..., None], place < starts[..., None])

    def tokenizer(self) -> Tokenizer:
        """The tokenizer it was made with."""
        return Tokenizer.load(self.directory)

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Refuse a tokenizer, say of a checkpoint, whose ids mean something else than these."""
        if tokenizer.fingerprint != self.manifest.tokenizer_fingerprint:
            raise ValueError(
                f"{self.directory} was prepared with tokenizer '{self.manifest.tokenizer}' "
                f"({self.manifest.vocab_size:,} tokens, {self.manifest.tokenizer_fingerprint[:12]}), not with "
                f"'{tokenizer.name}' ({tokenizer.vocab_size:,} tokens, {tokenizer.fingerprint[:12]}); "
                "prepare the data with the tokenizer of the model"
            )

    @property
    def fingerprint(self) -> str:
        """A hash of tokens and lengths, since equal tokens may have padding elsewhere, and of where answers begin."""
        found = f"{self.manifest.tokens_sha256}, lengths {hashlib.sha256(self.lengths.tobytes()).hexdigest()}"
        if self.starts is None:
            return found
        return f"{found}, answers {hashlib.sha256(self.starts.tobytes()).hexdigest()}"

    def documents(self) -> Iterator[np.ndarray]:
        """The ids of each document, without BOS, EOS and padding: what packing was given, less what it left out."""
        before = int(self.manifest.ends in ("both", "bos"))
        after = int(self.manifest.ends in ("both", "eos"))
        texts = (row[before : int(n) - after] for row, n in zip(self.tokens, self.lengths, strict=True))
        if self.manifest.layout != "packed":
            yield from texts
            return
        separator = self.tokenizer().eos_id
        parts: list[np.ndarray] = []
        for text in texts:
            *ended, rest = np.split(text, np.flatnonzero(text == separator) + 1)
            for piece in ended:
                yield np.concatenate([*parts, piece[:-1]])
                parts = []
            parts.append(rest)
        if sum(map(len, parts)):
            yield np.concatenate(parts)
