"""What sequences start from: a prompt, a text with gaps, or nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from multimdm._checks import check_integer, require
from multimdm.data.tokenizer import Tokenizer

Item = TypeVar("Item")

GAP = "[MASK]"
"""What stands for one unknown token in a text."""


@dataclass(frozen=True)
class Canvas:
    """What a sequence starts from: ids, which of them are given, which are not padding."""

    given: Int64[Tensor, "num L"]
    fixed: Bool[Tensor, "num L"]
    valid: Bool[Tensor, "num L"] | None = None

    @property
    def settled(self) -> Bool[Tensor, "num L"]:
        """Where nothing is to be made: what is given, and padding."""
        return self.fixed if self.valid is None else self.fixed | ~self.valid

    def rows(self, part: slice) -> "Canvas":
        """Some of the sequences."""
        return Canvas(self.given[part], self.fixed[part], None if self.valid is None else self.valid[part])

    def to(self, device: torch.device) -> "Canvas":
        """The same on a device."""
        valid = None if self.valid is None else self.valid.to(device)
        return Canvas(self.given.to(device), self.fixed.to(device), valid)


def empty_canvas(num: int, length: int) -> Canvas:
    """A canvas on which nothing is given."""
    check_integer("num", num, 1)
    return Canvas(torch.zeros(num, length, dtype=torch.long), torch.zeros(num, length, dtype=torch.bool))


def prompt_row(ids: Sequence[int], length: int) -> list[int | None]:
    """The given ids first, the rest to be made."""
    require(
        len(ids) <= length,
        f"prompt must fit into the length of {length}; it has {len(ids)} tokens: raise length or shorten it",
    )
    return [*ids, *[None] * (length - len(ids))]


def rows_canvas(rows: Sequence[Sequence[int | None]], num: int) -> Canvas:
    """Each of the rows `num` times: given ids where they are known, None where a token is to be made.

    Padding comes behind the shorter ones, so that positions count as without it.
    """
    check_integer("num", num, 1)
    longest = max(map(len, rows))
    given = torch.tensor([[*(token or 0 for token in row), *[0] * (longest - len(row))] for row in rows])
    made = torch.tensor([[*(token is None for token in row), *[True] * (longest - len(row))] for row in rows])
    valid = torch.arange(longest) < torch.tensor([len(row) for row in rows])[:, None]
    given, fixed, valid = (part.repeat_interleave(num, 0) for part in (given.long(), ~made & valid, valid))
    return Canvas(given, fixed, None if bool(valid.all()) else valid)


def repeated(items: Sequence[Item], num: int) -> list[Item]:
    """Each of them `num` times, as `rows_canvas` has its rows."""
    return [item for item in items for _ in range(num)]


def prompts_canvas(prompts: Sequence[Sequence[int]], new_tokens: int, longest: int, name: str) -> Canvas:
    """Prompts of any lengths, each followed by as many tokens to be made (`name` is what the user calls them).

    Padding comes behind: positions count from the prompt's start, as without padding.
    """
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    most = int(lengths.max())
    require(
        most + new_tokens <= longest,
        f"a prompt of {most} tokens and {name} {new_tokens} do not fit into the network's {longest} positions; "
        "shorten one of them",
    )
    place = torch.arange(most + new_tokens)
    given = torch.zeros(len(prompts), most + new_tokens, dtype=torch.long)
    for row, prompt in zip(given, prompts, strict=True):
        row[: len(prompt)] = torch.tensor(prompt, dtype=torch.long)
    valid = place < lengths[:, None] + new_tokens
    return Canvas(given, place < lengths[:, None], None if bool(valid.all()) else valid)


def encode_gaps(tokenizer: Tokenizer, text: str) -> list[int | None]:
    """Ids of a text in which every [MASK] stands for one token, None there."""
    first, *rest = text.split(GAP)
    require(bool(rest), f"text must have a {GAP} where a token is to be made; got {text!r}")
    ids: list[int | None] = []
    for piece in (first, *rest[:-1]):
        ids += [*tokenizer.encode_given(_without_joined_space(tokenizer, piece)), None]
    return [*ids, *tokenizer.encode_given(rest[-1])]


def _without_joined_space(tokenizer: Tokenizer, piece: str) -> str:
    """Without the space at the end if the tokenizer would make it the beginning of the next token.

    GPT-2's word tokens carry the space before them: in "the [MASK] sat" it belongs to the token to be found.
    """
    bare, alone = piece.removesuffix(" "), tokenizer.encode(piece)
    if alone == tokenizer.encode(bare):  # spaces are nothing to this tokenizer
        return bare
    return piece if tokenizer.encode(piece + "a")[: len(alone)] == alone else bare


def texts_of(name: str, given: str | Sequence[str]) -> list[str]:
    """One text or several, as a list."""
    texts = [given] if isinstance(given, str) else list(given)
    require(len(texts) > 0, f"{name} must be a text or a list of texts; got an empty list")
    for one in texts:
        require(isinstance(one, str), f"{name} must be a text or a list of texts; got {one!r}")
    return texts


def start_ids(tokenizer: Tokenizer, bos: bool) -> list[int]:
    """The tokenizer's BOS, as prepared data have it at the start of a sequence, if it is wanted."""
    if not bos:
        return []
    if tokenizer.bos_id is None:
        raise ValueError(f"bos must be off: tokenizer '{tokenizer.name}' has no BOS token")
    return [tokenizer.bos_id]
