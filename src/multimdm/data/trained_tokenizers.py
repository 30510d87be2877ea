"""Tokenizers made from the corpus itself: byte-level BPE, and characters."""

from collections.abc import Iterable

from multimdm.data.bpe_training import SPECIAL, bpe_definition
from multimdm.data.tokenizer import Tokenizer

_UNKNOWN = "<unk>"
_ALPHABET = 256


def bpe_size(name: str) -> int:
    """SIZE of `bpe:SIZE`: the vocabulary with special tokens."""
    least = _ALPHABET + len(SPECIAL)
    digits = name.removeprefix("bpe:")
    if not digits.isdecimal() or int(digits) < least:
        raise ValueError(
            f"--tokenizer {name}: SIZE in bpe:SIZE must be a number, at least {least} (all bytes and special tokens)"
        )
    return int(digits)


def train_bpe(documents: Iterable[str], size: int) -> Tokenizer:
    """Byte-level byte-pair encoding with at most `size` tokens; every text can be encoded and comes back as it was.

    A small corpus may not have enough pairs that occur twice; the vocabulary is then smaller.
    """
    return Tokenizer(bpe_definition(documents, size), SPECIAL, f"bpe:{size}")


def train_chars(documents: Iterable[str]) -> Tokenizer:
    """One token for each character (code point) of the documents; others become <unk>."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models

    characters: set[str] = set()
    for document in documents:
        characters.update(document)
    specials = [*SPECIAL.values(), _UNKNOWN]
    vocabulary = {token: number for number, token in enumerate([*specials, *sorted(characters)])}
    # BPE without merges is characters, and faster than splitting by a pattern.
    backend = Backend(models.BPE(vocab=vocabulary, merges=[], unk_token=_UNKNOWN, fuse_unk=False))
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens(specials)
    return Tokenizer(backend.to_str(), {**SPECIAL, "unk": _UNKNOWN}, "chars")
