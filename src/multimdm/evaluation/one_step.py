"""How probable a text is under a model with quantile noise that writes in one step.

One step draws x_1 uniformly and every token by itself, p_1(x_0) = E over x_1 of prod_l f(x_0^l | x_1), with f the
network at t = 1. Hardly any x_1 of the prior leads to a given text, so a mean over such strings (`recall.py`) finds
nothing. But the teacher knows which do: those with x_1^l ~ Q_l(. | x_0), the buckets of its numbers.

The bound: -log p_1(x_0) <= E_Q[-sum_l log f(x_0^l | x_1)] + sum_l (log M - H(Q_l)). One step costs what the tokens say
of their masks, nearly the teacher's own -log q, and the cross-entropy of the draft on top.

The estimate: p_1(x_0) = E_R[prod_l f(x_0^l | x_1) / (M R_l(x_1^l))] for any law R that is positive everywhere. R = Q is
not: a string outside the buckets of Q may lead to the text as well, so with Q alone the mean is too low. Here
R_l = (1 - d) Q_l + d / M. The mean over S strings is without bias, and its logarithm too low on average, less so with
larger S.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from multimdm._checks import check_integer, require
from multimdm.evaluation.nelbo import NelboSums
from multimdm.objectives.base import Network
from multimdm.process import MultiMask, Streams
from multimdm.process.draws import Generator, pick, uniform
from multimdm.process.places import beside, exact, widened
from multimdm.process.quantile import Cells, bucket_information, bucket_probability, buckets, numbers

ELSEWHERE = 0.02
"""d: the share of every position's noise that is drawn without looking at the text."""


@dataclass(frozen=True)
class OneStep:
    """Texts under a network that writes them in one step. Padding (not `valid`) is no part of them."""

    network: Network
    process: MultiMask
    ids: Int64[Tensor, "B L"]
    valid: Bool[Tensor, "B L"] | None = None

    @property
    def counted(self) -> Bool[Tensor, "B L"]:
        """The positions of the texts."""
        return torch.ones_like(self.ids, dtype=torch.bool) if self.valid is None else self.valid

    @torch.no_grad()
    def bound(self, cells: Cells, generator: Streams, draws: int = 1) -> NelboSums:
        """The two terms of the bound: the draft's cross-entropy, and what the tokens say of their masks."""
        check_integer("draws", draws, 1)
        M, device = self.process.num_masks, self.ids.device
        draft = torch.zeros(len(self.ids), dtype=torch.float64, device=device)
        for _ in range(draws):
            x_1 = self._masks(buckets(numbers(cells, generator), M))
            draft -= self.log_prob_given(x_1) / draws
        information = bucket_information(cells, M).to(device).where(self.counted, 0.0).sum(1)
        return NelboSums.of(draft, information, self.counted.sum(1).double())

    @torch.no_grad()
    def log_prob(
        self,
        cells: Cells,
        generator: Streams,
        draws: int,
        temperature: float | int = 1.0,
        elsewhere: float = ELSEWHERE,
    ) -> Float64[Tensor, " B"]:
        """log of the mean over draws of x_1 ~ R of prod_l f(x_0^l | x_1) / (M R_l(x_1^l)), in nats per text."""
        check_integer("draws", draws, 1)
        require(temperature > 0, f"temperature must be positive: at 0 texts have no probability; got {temperature}")
        M, device = self.process.num_masks, self.ids.device
        total = torch.full((len(self.ids),), -math.inf, dtype=torch.float64, device=device)
        for _ in range(draws):
            index = _proposed(cells, M, elsewhere, generator)
            own = bucket_probability(cells, index, M)
            ratio = torch.log(M * (1 - elsewhere) * own + elsewhere).to(device)
            found = self.log_prob_given(self._masks(index), temperature)
            total = torch.logaddexp(total, found - ratio.where(self.counted, 0.0).sum(1))
        return total - math.log(draws)

    def log_prob_given(self, x_1: Int64[Tensor, "B L"], temperature: float | int = 1.0) -> Float64[Tensor, " B"]:
        """sum_l log f(x_0^l | x_1) of every text under its own x_1."""
        return self.token_log_probs(x_1, temperature).sum(1)

    def token_log_probs(self, x_1: Int64[Tensor, "B L"], temperature: float | int = 1.0) -> Float64[Tensor, "B L"]:
        """log f(x_0^l | x_1) at t = 1, position by position; zero in padding."""
        ids, counted = self.ids, self.counted
        clean = ids[counted]

        def reduce(logits: Tensor, rows: slice) -> Tensor:
            log_probs = (widened(logits) / temperature).log_softmax(-1)
            return exact(log_probs.gather(-1, beside(clean[rows, None], log_probs))[:, 0])

        ones = torch.ones(len(ids), dtype=torch.float64, device=ids.device)
        found = self.network(self.process.path_to(x_1).shown(x_1), ones, counted, self.valid, reduce)
        return torch.zeros(ids.shape, dtype=torch.float64, device=ids.device).masked_scatter(counted, found)

    def _masks(self, index: Int64[Tensor, "B L"]) -> Int64[Tensor, "B L"]:
        """x_1, from the indices of its masks."""
        return (self.process.vocab_size + index).to(self.ids.device)


def _proposed(cells: Cells, num_masks: int, elsewhere: float, generator: Generator) -> Int64[Tensor, "B L"]:
    """x_1 ~ R, as indices of buckets."""
    own = buckets(numbers(cells, generator), num_masks)
    away, anywhere = (uniform(own.shape, generator, own.device) for _ in range(2))
    return torch.where(away < elsewhere, pick(anywhere, num_masks), own)
