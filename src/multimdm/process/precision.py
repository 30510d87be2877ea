"""The precision in which probabilities are worked with."""

import torch
from torch import Tensor


def widened(x: Tensor) -> Tensor:
    """`x` in float32 or better: sums of bfloat16 probabilities lose what they are to tell."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
