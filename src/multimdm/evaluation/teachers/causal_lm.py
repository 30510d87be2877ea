"""Any causal language model of Hugging Face as teacher, if its tokens are those of the texts."""

from typing import Any

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from multimdm._checks import require
from multimdm.data.tokenizer import Tokenizer
from multimdm.evaluation.language_models import LanguageModel
from multimdm.objectives.next_token import shift_right
from multimdm.process.places import exact, home_of
from multimdm.process.quantile import Cells, Order, cells, token_at

_TOKENS = 512
"""Positions that go through the network together: a constant, so that cells do not depend on who asks."""


class CausalLMTeacher:
    """q(x_l | x_<l). Before the first token stands the model's BOS, or its EOS if it has none, as in GPT-2.

    A text that begins with that symbol itself has its first token for nothing: the cell of a given token is everything.
    If all texts do (`begins` is that symbol), those that it writes do, too.
    """

    def __init__(
        self,
        name: str,
        fingerprint: str,
        teacher: LanguageModel,
        tokenizer: Tokenizer,
        length: int,
        begins: int | None = None,
    ) -> None:
        self.name, self.fingerprint, self.vocab_size = name, fingerprint, tokenizer.vocab_size
        self._network = teacher.network
        _check_tokens(name, teacher.tokenizer, tokenizer)
        rows = self._network.get_output_embeddings().weight.shape[0]
        require(
            rows >= tokenizer.vocab_size,
            f"teacher '{name}' predicts {rows} tokens; the texts have {tokenizer.vocab_size}",
        )
        require(
            length <= teacher.context,
            f"teacher '{name}' can look at {teacher.context} tokens at most; the texts have {length}",
        )
        starts = [i for i in (teacher.tokenizer.bos_token_id, teacher.tokenizer.eos_token_id) if i is not None]
        require(bool(starts), f"teacher '{name}' has neither BOS nor EOS to stand before a text")
        self._start: int = starts[0]
        self._begun = begins == self._start

    def to(self, device: torch.device) -> None:
        """Compute there from now on."""
        self._network.to(device)

    def embeddings(self) -> Float[Tensor, "V d"]:
        """The rows of the map to logits."""
        return self._network.get_output_embeddings().weight.detach()[: self.vocab_size]

    @torch.no_grad()
    def cells(self, ids: Int64[Tensor, "B L"], order: Order = "id") -> Cells:
        """A few sequences at a time."""
        together = max(1, _TOKENS // ids.shape[1])
        found = [self._cells(part, order) for part in ids.split(together)]
        return Cells(*(torch.cat(column) for column in zip(*found, strict=True)))

    def _cells(self, ids: Tensor, order: Order) -> Cells:
        device = next(self._network.parameters()).device
        begun = ids[:, 0] == self._start
        # What stands before the start symbol does not count: where the text has it, it is not shown a second time.
        shown = torch.where(begun[:, None], ids, shift_right(ids, self._start))
        probs = self._probs(self._network(input_ids=shown.to(device)).logits)
        after_given = torch.cat([torch.ones_like(probs[:, :1]), probs[:, :-1]], dim=1)
        probs = torch.where(begun[:, None, None].to(probs.device), after_given, probs)
        lower, width = cells(probs, ids.to(probs.device), order)
        given = torch.zeros_like(ids, dtype=torch.bool)
        given[:, 0] = begun
        return Cells(lower.cpu().where(~given, 0.0), width.cpu().where(~given, 1.0))

    @torch.no_grad()
    def write(self, u: Float64[Tensor, "B L"], order: Order = "id") -> Int64[Tensor, "B L"]:
        """One network call per token, each with the memory of those before."""
        device = next(self._network.parameters()).device
        tokens = torch.full((len(u), 1), self._start, device=device)
        memory, written = None, [tokens.cpu()] if self._begun else []
        for number in u.T[len(written) :].to(home_of(device)):
            out = self._network(input_ids=tokens, past_key_values=memory, use_cache=True)
            memory = out.past_key_values
            tokens = token_at(self._probs(out.logits[:, -1]), number, order)[:, None].to(device)
            written.append(tokens.cpu())
        return torch.cat(written, dim=1)

    def _probs(self, logits: Tensor) -> Tensor:
        """Without rows that stand for no token."""
        return exact(logits[..., : self.vocab_size]).softmax(-1)


def _check_tokens(name: str, theirs: Any, ours: Tokenizer) -> None:
    """Every id must mean the same: the whole vocabulary is compared, before any work."""
    known = ours.tokens
    for i, (own, other) in enumerate(zip(known, theirs.convert_ids_to_tokens(list(range(len(known)))), strict=True)):
        require(
            own == other,
            f"teacher '{name}' must have the tokenizer of the texts; id {i} is {other!r} to the teacher and {own!r} in "
            f"'{ours.name}': prepare the texts with the teacher's tokenizer",
        )
