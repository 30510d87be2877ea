"""States of a masked process with a drawn number of hidden positions, for bounds with finite variance.

The bound of a text is an integral over time of the loss at hidden positions. Drawn as it stands, with every position
hidden by itself, its estimate has no finite variance: near t = 0 almost nothing is hidden, and what is weighs 1 / t. So
the number k of hidden positions is drawn instead. For n positions and s = 1 - alpha_t, the share that is hidden,

    int_0^1 Bin(k; n, s) f(s) ds / s = (1/k) E f(s),   s ~ Beta(k, n + 1 - k),

and the bound is the mean over k = 1 .. n of (n/k) times the sum over k random positions of s times their loss per unit
of s. For one mask this is the estimator of LLaDA. The k smallest of n numbers lie at a random set of positions, and the
largest of them has that Beta law: one draw per position gives both.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from multimdm.process import MultiMask, Streams
from multimdm.process.draws import pick
from multimdm.samplers.blocks import time_of_share


@dataclass(frozen=True)
class Hidden:
    """Which positions of each sequence are hidden, and when."""

    positions: Bool[Tensor, "B L"]
    t: Float64[Tensor, " B"]
    weight: Float64[Tensor, " B"]
    """What the loss density at t counts in the bound: (n/k) s dt/ds; zero for a sequence without positions."""


def draw_hidden(
    process: MultiMask, counted: Bool[Tensor, "B L"], spread: Float64[Tensor, " B"], generator: Streams
) -> Hidden:
    """Among the counted positions; a number in (0, 1) for each sequence stands for how many of them are hidden."""
    n = counted.sum(1)
    k = (1 + (spread * n).long()).minimum(n).clamp_min(1)
    noise = generator.uniform(counted.shape, counted.device).masked_fill(~counted, 1.0)
    share = noise.sort(dim=1).values.gather(1, k[:, None] - 1)
    t = time_of_share(process.schedule, share[:, 0])
    weight = share[:, 0] / -process.schedule(t).d_alpha * n / k
    return Hidden((noise <= share) & counted, t, weight)


def hide(process: MultiMask, x_0: Int64[Tensor, "B L"], hidden: Hidden, generator: Streams) -> Int64[Tensor, "B L"]:
    """x_t: what is hidden is at its designated mask or, with probability 1 - beta_t, at any."""
    stray, which = (generator.uniform(x_0.shape, x_0.device) for _ in range(2))
    anywhere = process.vocab_size + pick(which, process.num_masks)
    leaves = process.schedule(hidden.t).one_minus_beta[:, None]
    mask = torch.where(stray < leaves, anywhere, process.designated_mask(x_0))
    return torch.where(hidden.positions, mask, x_0)
