"""A Hugging Face causal language model as judge: the paper's protocol."""

from contextlib import AbstractContextManager, nullcontext

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn import functional as F

from multimdm.data.tokenizer import Tokenizer
from multimdm.evaluation.judges.base import Scores
from multimdm.evaluation.judges.end_of_text import counted, pieces
from multimdm.evaluation.language_models import LanguageModel
from multimdm.evaluation.progress import Progress, ignore
from multimdm.models.arithmetic import has_bfloat16
from multimdm.pipeline.ranks import shared

_TOKENS, _TOKENS_CPU = 2048, 512
"""Positions that go through the network together: with V = 50,257, logits of 0.4 GB. A CPU is fastest with few."""


class CausalLMJudge:
    """Decode, tokenize anew with the judge's tokenizer, truncate to the length of the model's sequences, score.

    A token's probability is that given the tokens before it. The first token has none before it and does not count,
    unless the judge's tokenizer puts a BOS there.
    """

    def __init__(self, name: str, fingerprint: str, judge: LanguageModel, reader: Tokenizer) -> None:
        """`reader` is the tokenizer of the model that is judged."""
        self.name, self.fingerprint = name, fingerprint
        self._network, self._tokenizer, self._reader = *judge, reader
        self._context = judge.context

    def score(
        self, ids: Int64[Tensor, "num L"], valid: Bool[Tensor, "num L"] | None = None, progress: Progress = ignore
    ) -> Scores:
        """Judge sequences of the model."""
        L = ids.shape[1]
        encoded = self._encoded(ids, valid)
        device = next(self._network.parameters()).device
        together = max(1, (_TOKENS_CPU if device.type == "cpu" else _TOKENS) // L)
        # Texts of like length together: little padding is computed in vain.
        order = sorted(range(len(encoded)), key=lambda number: len(encoded[number]))
        parts = [order[start : start + together] for start in range(0, len(encoded), together)]

        def of(numbers: list[int]) -> Scores:
            scores = self._score(*_padded([encoded[number] for number in numbers]))
            progress(len(numbers))
            return scores

        nll, tokens = torch.zeros(len(encoded), dtype=torch.float64), torch.zeros(len(encoded), dtype=torch.long)
        for numbers, scores in zip(parts, shared(parts, of), strict=True):
            nll[numbers], tokens[numbers] = scores.nll, scores.tokens
        return Scores(nll, tokens)

    def _encoded(self, ids: Tensor, valid: Tensor | None) -> list[list[int]]:
        """The sequences in the judge's tokens."""
        rows = ids.tolist() if valid is None else [row[kept].tolist() for row, kept in zip(ids, valid, strict=True)]
        end = self._tokenizer.eos_token or ""
        texts = ["".join(end if piece is None else piece for piece in pieces(self._reader, row)) for row in rows]
        return self._tokenizer(texts, truncation=True, max_length=ids.shape[1])["input_ids"]

    @torch.no_grad()
    def features(
        self, ids: Int64[Tensor, "num L"], valid: Bool[Tensor, "num L"] | None = None
    ) -> Float[Tensor, "num d"]:
        """The last layer at the last token of each text, or of as much of it as the network can see at once."""
        device, found = next(self._network.parameters()).device, []
        for row in self._encoded(ids, valid):
            x, there = _padded([row[: self._context]])
            there[:, 0] = True  # of an empty text
            with arithmetic(device):
                shown = self._network(
                    input_ids=x.to(device), attention_mask=there.to(device).long(), output_hidden_states=True
                )
            found.append(shown.hidden_states[-1][:, -1].float().cpu())
        return torch.cat(found)

    @torch.no_grad()
    def _score(self, ids: Int64[Tensor, "B L"], valid: Bool[Tensor, "B L"]) -> Scores:
        counts = counted(ids, valid, self._tokenizer.eos_token_id)
        nll, tokens = torch.zeros(len(ids), dtype=torch.float64), torch.zeros(len(ids), dtype=torch.long)
        device = next(self._network.parameters()).device
        for start in range(0, ids.shape[1], self._context):  # windows, if the judge's memory is shorter than the text
            window = slice(start, start + self._context)
            x, kept = ids[:, window].to(device), counts[:, window][:, 1:]
            if not bool(kept.any()):
                continue
            with arithmetic(device):
                logits = self._network(input_ids=x, attention_mask=valid[:, window].to(device).long()).logits
            where = kept.to(device)
            losses = F.cross_entropy(logits[:, :-1][where].float(), x[:, 1:][where], reduction="none")
            nll += torch.zeros(kept.shape, dtype=torch.float64).masked_scatter(kept, losses.cpu().double()).sum(1)
            tokens += kept.sum(1)
        return Scores(nll, tokens)


def arithmetic(device: torch.device) -> AbstractContextManager:
    """A judge multiplies matrices in bfloat16 on a GPU that has it, and computes everything else in float32."""
    half = device.type == "cuda" and has_bfloat16(device)
    return torch.autocast(device.type, torch.bfloat16) if half else nullcontext()


def _padded(encoded: list[list[int]]) -> tuple[Int64[Tensor, "B L"], Bool[Tensor, "B L"]]:
    """Rows of one length, and what of them is text. An empty text is one position of padding."""
    longest = max(1, *map(len, encoded))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in encoded], dtype=torch.long)
    return ids, torch.arange(longest) < torch.tensor([len(row) for row in encoded])[:, None]
