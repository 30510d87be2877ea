"""Noised texts for bounds: at a drawn time or, for masks, with a drawn number of hidden positions.

The bound of a text is an integral over time of the loss at hidden positions. Drawn as it stands, with every position
hidden by itself, its estimate has no finite variance: near t = 0 almost nothing is hidden, and what is weighs 1 / t. So
the number k of hidden positions is drawn instead. For n positions and s = 1 - alpha_t, the share that is hidden,

    int_0^1 Bin(k; n, s) f(s) ds / s = (1/k) E f(s),   s ~ Beta(k, n + 1 - k),

and the bound is the mean over k = 1 .. n of (n/k) times the sum over k random positions of s times their loss per unit
of s. For one mask this is the estimator of LLaDA. The k smallest of n numbers lie at a random set of positions, and the
largest of them has that Beta law: one draw per position gives both.

Uniform states hide every position at all times, and are noised at times as they come.

Shapes: B sequences of L positions.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from multimdm.process import Path, Streams
from multimdm.samplers.blocks import time_of_share


@dataclass(frozen=True)
class Noised:
    """One state of each sequence."""

    x_t: Int64[Tensor, "B L"]
    t: Float64[Tensor, " B"]
    positions: Bool[Tensor, "B L"]
    """What is to be predicted."""
    weight: Float64[Tensor, " B"]
    """What the loss density at t counts in the bound: (n/k) s dt/ds for masks, zero for a sequence without positions;
    1 for others."""


def noised(
    path: Path,
    x_0: Int64[Tensor, "B L"],
    counted: Bool[Tensor, "B L"],
    spread: Float64[Tensor, " B"],
    generator: Streams,
) -> Noised:
    """Noise where it counts, the text elsewhere; numbers in (0, 1) are times, or stand for how much is hidden."""
    process = path.process
    if process.num_masks == 0:
        x_t = torch.where(counted, path.corrupt(x_0, spread, generator), x_0)
        return Noised(x_t, spread, process.active(x_t) & counted, torch.ones_like(spread))
    n = counted.sum(1)
    k = (1 + (spread * n).long()).minimum(n).clamp_min(1)
    # s, the k-th smallest of n numbers, and the positions of those up to it
    numbers = generator.uniform(counted.shape, counted.device).masked_fill(~counted, 1.0)
    share = numbers.sort(dim=1).values.gather(1, k[:, None] - 1)
    hidden = (numbers <= share) & counted
    # (n/k) s dt/ds, with ds/dt = -alpha'
    t = time_of_share(process.schedule, share[:, 0])
    weight = share[:, 0] / -process.schedule(t).d_alpha * n / k
    x_t = torch.where(hidden, path.masks_of(x_0, t, generator), x_0)
    return Noised(x_t, t, hidden, weight)
