"""An autoregressive checkpoint of ours as judge."""

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn import functional as F

from multimdm._checks import require
from multimdm.data.tokenizer import Tokenizer
from multimdm.evaluation.judges.base import Scores
from multimdm.evaluation.judges.end_of_text import counted, pieces
from multimdm.evaluation.progress import Progress, ignore
from multimdm.objectives.next_token import shift_right
from multimdm.pipeline import Model
from multimdm.pipeline.ranks import shared
from multimdm.process.places import beside, home_of, widened

_TOGETHER = 32


class AutoregressiveJudge:
    """-sum_l log p(x_l | x_<l). The first token counts: the network is shown a start symbol before it.

    Ids are judged as they are if the model has the judge's tokenizer; otherwise text is decoded, tokenized anew and
    truncated to the length of the model's sequences.
    """

    def __init__(self, name: str, fingerprint: str, judge: Model, reader: Tokenizer, length: int) -> None:
        """`reader` is the tokenizer of the model that is judged, `length` that of its sequences."""
        require(
            judge.process is None,
            f"judge '{name}' must be autoregressive (system: ar); it is a diffusion model, which has no likelihood",
        )
        if judge.tokenizer is None:
            raise ValueError(f"judge '{name}' has no tokenizer, so its ids mean nothing to others")
        longest = judge.network.config.max_length
        require(length <= longest, f"judge '{name}' was made for {longest} tokens at most; the samples have {length}")
        self.name, self.fingerprint = name, fingerprint
        self._network, self._tokenizer, self._reader = judge.network.eval(), judge.tokenizer, reader

    def score(
        self, ids: Int64[Tensor, "num L"], valid: Bool[Tensor, "num L"] | None = None, progress: Progress = ignore
    ) -> Scores:
        """Judge sequences of the model."""
        ids, valid = self._read(ids.cpu(), torch.ones_like(ids, dtype=torch.bool) if valid is None else valid.cpu())

        def of(start: int) -> Scores:
            x, there = ids[start : start + _TOGETHER], valid[start : start + _TOGETHER]
            counts = counted(x, there, self._tokenizer.eos_id)
            scores = Scores(self._nll(x, there, counts), counts.sum(1))
            progress(len(x))
            return scores

        parts = shared(range(0, len(ids), _TOGETHER), of)
        return Scores(torch.cat([part.nll for part in parts]), torch.cat([part.tokens for part in parts]))

    @torch.no_grad()
    def features(
        self, ids: Int64[Tensor, "num L"], valid: Bool[Tensor, "num L"] | None = None
    ) -> Float[Tensor, "num d"]:
        """The last layer where the last token of each text is predicted, from all before it."""
        ids, valid = self._read(ids.cpu(), torch.ones_like(ids, dtype=torch.bool) if valid is None else valid.cpu())
        device = home_of(next(self._network.parameters()).device)
        found = []
        for start in range(0, len(ids), _TOGETHER):
            x, there = ids[start : start + _TOGETHER], valid[start : start + _TOGETHER]
            last = torch.zeros_like(there)
            last[torch.arange(len(x)), (there.sum(1) - 1).clamp_min(0)] = True
            shown = shift_right(x, self._network.config.vocab_size).to(device)
            attended = there.clone()
            attended[:, 0] = True  # the start symbol, of a text that is empty
            found.append(self._network.features(shown, None, last.to(device), attended.to(device)).float().cpu())
        return torch.cat(found)

    def _read(self, ids: Tensor, valid: Tensor) -> tuple[Int64[Tensor, "num L"], Bool[Tensor, "num L"]]:
        """The sequences in the judge's tokens."""
        L = ids.shape[1]
        result, lengths = torch.zeros_like(ids), []
        for number, (row, kept) in enumerate(zip(ids, valid, strict=True)):
            # To the left, without gaps: what a token is predicted from is the token before it.
            tokens = self._translate(row[kept].tolist())[:L]
            result[number, : len(tokens)] = torch.tensor(tokens, dtype=torch.long)
            lengths.append(len(tokens))
        return result, torch.arange(L) < torch.tensor(lengths)[:, None]

    def _translate(self, ids: list[int]) -> list[int]:
        """Without states that are no tokens."""
        if self._reader.fingerprint == self._tokenizer.fingerprint:
            return [token for token in ids if token < self._tokenizer.vocab_size]
        end = [] if self._tokenizer.eos_id is None else [self._tokenizer.eos_id]
        found = pieces(self._reader, ids)
        return [token for piece in found for token in (end if piece is None else self._tokenizer.encode(piece))]

    @torch.no_grad()
    def _nll(self, ids: Tensor, valid: Tensor, counts: Tensor) -> Tensor:
        """The negative log-likelihood of each sequence."""
        device = home_of(next(self._network.parameters()).device)
        targets = ids[counts].to(device)

        def reduce(logits: Tensor, rows: slice) -> Tensor:
            wide = widened(logits)
            return F.cross_entropy(wide, beside(targets[rows], wide), reduction="none")

        result = torch.zeros(ids.shape, dtype=torch.float64)
        if len(targets):
            attended = None if bool(valid.all()) else valid.to(device)
            shown = shift_right(ids, self._network.config.vocab_size).to(device)
            losses = self._network(shown, None, positions=counts.to(device), valid=attended, reduce=reduce)
            result[counts] = losses.double().cpu()
        return result.sum(1)
