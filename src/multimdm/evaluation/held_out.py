"""Held-out text, part by part, with times and noise: for everything that is averaged over both."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from multimdm._checks import check_integer
from multimdm.evaluation.real_text import RealText
from multimdm.objectives.times import stratified_times
from multimdm.pipeline import Model
from multimdm.pipeline.generation import evaluating
from multimdm.pipeline.ranks import shared
from multimdm.process import Streams
from multimdm.process.places import home_of

Result = TypeVar("Result")


class Part(NamedTuple):
    """Sequences that go through the network together."""

    ids: Int64[Tensor, "B L"]
    valid: Bool[Tensor, "B L"] | None
    times: Float64[Tensor, "draws B"]
    first: int
    """The number of the first of them, for their streams."""
    given: Bool[Tensor, "B L"] | None = None
    """The prompts of pairs. `valid` is then None: what fills a sequence up says where its answer ends."""
    written: Int64[Tensor, " B"] | None = None
    """The number of tokens of each answer of pairs: its end counts, what fills the sequence up does not."""

    @property
    def tokens(self) -> Int64[Tensor, " B"]:
        """How many each sequence has, for figures per token."""
        if self.written is not None:
            return self.written
        if self.valid is not None:
            return self.valid.sum(1)
        return torch.full((len(self.ids),), self.ids.shape[1], device=self.ids.device)

    @property
    def counted(self) -> Bool[Tensor, "B L"]:
        """What is neither padding nor given."""
        counted = torch.ones_like(self.ids, dtype=torch.bool) if self.valid is None else self.valid
        return counted if self.given is None else counted & ~self.given

    def streams(self, seed: int) -> Streams:
        """The noise of a sequence is its own, so the batch size changes nothing."""
        return Streams.spawn(seed, len(self.ids), self.first)


def over_parts(
    model: Model,
    text: RealText,
    sequences: int,
    draws: int,
    seed: int,
    batch_size: int,
    work: Callable[[Part], Result],
) -> list[Result]:
    """`work` of every part, by a network without dropout; ranks that share their work take the parts in turn."""
    with evaluating(model.network):
        return shared(parts_of(model, text, sequences, draws, seed, batch_size), work)


def parts_of(model: Model, text: RealText, sequences: int, draws: int, seed: int, batch_size: int) -> Iterator[Part]:
    """As many sequences on the model's device; times evenly spread over all of them, anew in each of the draws."""
    for name, value in (("sequences", sequences), ("draws", draws), ("batch_size", batch_size)):
        check_integer(name, value, 1)
    example = text.take(sequences)
    n = len(example.ids)
    times = validation_times(n, draws, seed)
    device = home_of(next(model.network.parameters()).device)
    for start in range(0, n, batch_size):
        rows = slice(start, min(start + batch_size, n))
        part = example.rows(rows)
        if part.given is None:
            yield Part(*part.on(device), times[:, rows], start)
        else:
            given, written = part.given.to(device), part.counted.sum(1).to(device)
            yield Part(part.ids.to(device), None, times[:, rows], start, given, written)


def validation_times(sequences: int, draws: int, seed: int) -> Float64[Tensor, "draws sequences"]:
    """Numbers in (0, 1) for all sequences of a validation set, evenly spread in every draw; equal for equal seeds."""
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([stratified_times(sequences, generator) for _ in range(draws)])
