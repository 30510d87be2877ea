"""Networks that are tables, on two positions; and networks as plain functions, which cut their rows as they like."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from multimdm.process import Process


class Table:
    """A network on two positions that looks its logits up in a table [S, S, 2, V], which may depend on the time.

    It is called by the contract and has no other method: objectives cannot stop before its head.
    """

    def __init__(self, logits: Callable[[float], Tensor]) -> None:
        self.logits_at = logits
        self.calls: list[tuple[Tensor, Tensor, Tensor]] = []
        """States, times and positions of every call."""

    def __call__(self, x_t: Tensor, t: Tensor, positions: Tensor, valid: Any = None, reduce: Any = None) -> Any:
        assert x_t.shape[1] == 2
        self.calls.append((x_t, t, positions))
        times, which = t.unique(return_inverse=True)
        tables = torch.stack([self.logits_at(float(time)) for time in times])
        logits = tables[which, x_t[:, 0], x_t[:, 1]][positions]
        return logits if reduce is None else in_pieces(logits, reduce)


def in_pieces(logits: Tensor, reduce: Any) -> Any:
    """What `reduce` makes of the rows: two pieces of unequal size, the loss added up, the rest without gradient."""
    cut = len(logits) // 3
    pieces = [reduce(logits[rows], rows) for rows in (slice(0, cut), slice(cut, len(logits)))]
    losses, *others = zip(*pieces, strict=True)
    return sum(losses), *(torch.stack(other).sum(0).detach() for other in others)


def as_function(network: Any) -> Callable[..., Any]:
    """The same network behind the contract's signature alone, with all logits in one table."""

    def call(x_t: Tensor, t: Tensor, positions: Tensor, valid: Tensor | None = None, reduce: Any = None) -> Any:
        logits = network(x_t, t, None, valid)[positions]
        return logits if reduce is None else in_pieces(logits, reduce)

    return call


def random_table(process: Process, seed: int) -> Tensor:
    """Logits [S, S, 2, V] in float64."""
    S, V = process.num_states, process.vocab_size
    return torch.randn(S, S, 2, V, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def smooth_table(process: Process, seed: int) -> Table:
    """Random logits that move with the time."""
    start, slope = random_table(process, seed), random_table(process, seed + 100)
    return Table(lambda t: start + t * slope)
