"""Held-out text, part by part, with times and noise: for everything that is averaged over both."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from multimdm.data.prepared import Example
from multimdm.evaluation.nelbo import validation_times
from multimdm.evaluation.real_text import RealText
from multimdm.pipeline import Model
from multimdm.process import Streams
from multimdm.process.checks import check_integer


class Part(NamedTuple):
    """Sequences that go through the network together."""

    ids: Int64[Tensor, "B L"]
    valid: Bool[Tensor, "B L"] | None
    times: Float64[Tensor, "draws B"]
    first: int
    """The number of the first of them, for their streams."""

    @property
    def tokens(self) -> Int64[Tensor, " B"]:
        """How many each sequence has."""
        if self.valid is not None:
            return self.valid.sum(1)
        return torch.full((len(self.ids),), self.ids.shape[1], device=self.ids.device)

    def streams(self, seed: int) -> Streams:
        """The noise of a sequence is its own, so the batch size changes nothing."""
        return Streams.spawn(seed, len(self.ids), self.first)


def parts_of(model: Model, text: RealText, sequences: int, draws: int, seed: int, batch_size: int) -> Iterator[Part]:
    """As many sequences on the model's device; times evenly spread over all of them, anew in each of the draws."""
    for name, value in (("sequences", sequences), ("draws", draws), ("batch_size", batch_size)):
        check_integer(name, value, 1)
    example = text.take(sequences)
    n = len(example.ids)
    times = validation_times(n, draws, seed)
    device = next(model.network.parameters()).device
    for start in range(0, n, batch_size):
        rows = slice(start, min(start + batch_size, n))
        ids, valid = Example(example.ids[rows], example.valid[rows]).on(device)
        yield Part(ids, valid, times[:, rows], start)
