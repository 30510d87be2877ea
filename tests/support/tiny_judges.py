"""Hugging Face language models made on the spot, and a judge with known probabilities."""

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Int64
from torch import Tensor, nn

from multimdm.evaluation.judges import Scores
from multimdm.evaluation.progress import ignore

END = "<|endoftext|>"


def hugging_face_tokenizer(words: list[str]) -> Any:
    """One token per word, then the end of text and the unknown word."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate([*words, END, "[UNK]"])}
    backend = Backend(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=END, unk_token="[UNK]")


def save_tiny_gpt2(directory: Path, words: list[str], positions: int = 64) -> Any:
    """A GPT-2 with random weights, as a directory that `from_pretrained` reads."""
    from transformers import GPT2Config, GPT2LMHeadModel

    tokenizer = hugging_face_tokenizer(words)
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=positions,
        n_embd=16,
        n_layer=1,
        n_head=2,
        bos_token_id=len(words),
        eos_token_id=len(words),
    )
    network = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for weights in network.parameters():
            weights.mul_(8.0)  # predictions that differ
    network.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return network


class UnigramNetwork(nn.Module):
    """A causal language model whose every prediction is the same known law."""

    class _Config:
        def __init__(self, positions: int) -> None:
            self.max_position_embeddings = positions

    class _Output:
        def __init__(self, logits: Tensor) -> None:
            self.logits = logits

    def __init__(self, probs: Tensor, positions: int = 1024) -> None:
        super().__init__()
        self.config = self._Config(positions)
        self.log_probs = nn.Parameter(probs.log())

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> "UnigramNetwork._Output":
        return self._Output(self.log_probs.expand(*input_ids.shape, -1))


class KnownJudge:
    """Each id costs a known number of nats; some positions do not count."""

    name, fingerprint = "known", "known"

    def __init__(self, nats: Tensor, counted_below: int) -> None:
        self.nats, self.counted_below = nats, counted_below

    def score(self, ids: Int64[Tensor, "num L"], valid: Bool[Tensor, "num L"] | None = None, progress=ignore) -> Scores:
        counts = ids < self.counted_below
        return Scores((self.nats.double()[ids] * counts).sum(1), counts.sum(1))
