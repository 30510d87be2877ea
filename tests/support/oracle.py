"""Two positions, a known joint law of the data, and a network that predicts exactly."""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from multimdm.process import Process
from support.processes import predicts_posterior

Prediction = Callable[[Tensor], Tensor]


class Oracle:
    """p_0 on V x V tokens; called like a network, it gives what the process wants predicted, by enumeration."""

    def __init__(self, process: Process, seed: int = 0, law: Tensor | None = None) -> None:
        self.process, V = process, process.vocab_size
        drawn = torch.rand(V, V, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) ** 3
        self.law = (drawn / drawn.sum() if law is None else law).double()
        self.asked: list[Tensor] = []
        """The positions of every call."""
        self._tables: dict[float, Tensor] = {}

    def predictions(self, t: float) -> Tensor:
        """[S, S, 2, V]: for all states and both positions, p(x_0^l | x_t); without x_t^l if the process reads that."""
        if t not in self._tables:
            tokens = torch.arange(self.process.vocab_size)
            likelihood = self.process.marginal(tokens, torch.tensor(t, dtype=torch.float64))
            own = likelihood if predicts_posterior(self.process) else torch.ones_like(likelihood)
            first = torch.einsum("ab,ax,by->xya", self.law, own, likelihood)
            second = torch.einsum("ab,ax,by->xyb", self.law, likelihood, own)
            table = torch.stack([first, second], dim=2)
            total = table.sum(-1, keepdim=True)
            # States that cannot occur together get any prediction.
            self._tables[t] = torch.where(total > 0, table / total, 1 / self.process.vocab_size)
        return self._tables[t]

    def __call__(self, x_t, t, positions=None, valid=None, reduce=None):
        assert x_t.shape[1] == 2
        assert positions is not None
        assert reduce is not None
        self.asked.append(positions)
        if isinstance(t, Tensor):
            rows = torch.stack([self.predictions(float(time))[a, b] for (a, b), time in zip(x_t, t, strict=True)])
        else:
            rows = self.predictions(float(t))[x_t[:, 0], x_t[:, 1]]
        logits = rows[positions].log()
        cut = len(logits) // 3  # in two chunks, as a network may do
        parts = [reduce(logits[part], part) for part in (slice(0, cut), slice(cut, len(logits)))]
        if isinstance(parts[0], tuple):
            return tuple(torch.cat(column) for column in zip(*parts, strict=True))
        return torch.cat(parts)


Kernel = Callable[[Tensor, Tensor, float, float], Tensor]
"""(prediction [..., V], x_t, s, t) -> law of x_s [..., S]."""


def composed_law(
    oracle: Oracle, times: tuple[float, ...], kernel: Kernel | None = None, choose: Prediction | None = None
) -> Tensor:
    """The law [V, V] of what K steps give: the reverse kernels of both positions, composed over all pairs of states."""
    process = oracle.process
    kernel = process.reverse if kernel is None else kernel
    S = process.num_states
    one = process.marginal(torch.tensor(0), torch.tensor(1.0, dtype=torch.float64))
    law = one[:, None] * one
    states = torch.stack(torch.meshgrid(torch.arange(S), torch.arange(S), indexing="ij"), dim=-1)
    for t, s in pairwise(times):
        prediction = oracle.predictions(t)
        moved = kernel(prediction if choose is None else choose(prediction), states, s, t)
        law = torch.einsum("xy,xyi,xyj->ij", law, moved[:, :, 0], moved[:, :, 1])
    assert float(law.sum() - law[: process.vocab_size, : process.vocab_size].sum()) < 1e-12
    return law[: process.vocab_size, : process.vocab_size]


def total_variation(p: Tensor, q: Tensor) -> float:
    return float((p - q).abs().sum() / 2)


def pairs(ids: Tensor, V: int) -> Tensor:
    """Pairs of tokens as numbers; -1 for what is no pair of tokens."""
    code = ids[:, 0] * V + ids[:, 1]
    return torch.where((ids < V).all(1) & (ids >= 0).all(1), code, -1)
