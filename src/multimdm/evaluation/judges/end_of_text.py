"""Ends of texts in a sequence of tokens: how another vocabulary reads them, and which of them count."""

from collections.abc import Sequence

from jaxtyping import Bool, Int64
from torch import Tensor

from multimdm.data.tokenizer import Tokenizer


def pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str | None]:
    """The texts of a sequence, with None where it has BOS or EOS.

    Padding and states that are no tokens (masks; DUO's [PAD]) are left out.
    """
    ends = {tokenizer.bos_id, tokenizer.eos_id} - {None}
    nothing = {tokenizer.pad_id, tokenizer.mask_id} - {None} - ends
    found: list[str | None] = []
    run: list[int] = []

    def finish() -> None:
        if run:
            found.append(tokenizer.decode(run, keep_special=True))
            run.clear()

    for token in ids:
        if token in ends:
            finish()
            found.append(None)
        elif token not in nothing and token < tokenizer.vocab_size:
            run.append(token)
    finish()
    return found


def counted(ids: Int64[Tensor, "B L"], valid: Bool[Tensor, "B L"], end_id: int | None) -> Bool[Tensor, "B L"]:
    """What counts in GenPPL: every token but repeated ends of text, as in DUO; never padding.

    The first end counts wherever it stands; later ones would be cheap tokens that fill up a sequence.
    """
    if end_id is None:
        return valid
    ends = (ids == end_id) & valid
    return valid & ~(ends & (ends.cumsum(1) > 1))
