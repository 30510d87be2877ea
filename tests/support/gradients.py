"""Two computations of one loss: equal values, and equal gradients in every weight of the network."""

from typing import Any

import torch
from torch import Tensor, nn

TOLERANCE: dict[torch.dtype, Any] = {
    torch.float32: {"rtol": 5e-5, "atol": 5e-5},
    torch.float64: {"rtol": 1e-9, "atol": 1e-10},
}


def assert_same_loss(network: nn.Module, one: Tensor, other: Tensor) -> None:
    """Up to the rounding of the network's dtype; gradients are measured by the largest of a weight's."""
    weights = dict(network.named_parameters())
    tolerance = TOLERANCE[next(iter(weights.values())).dtype]
    torch.testing.assert_close(one.detach(), other.detach().to(one.dtype), **tolerance)
    gradients = [torch.autograd.grad(loss, list(weights.values()), allow_unused=True) for loss in (one, other)]
    for name, ours, theirs in zip(weights, *gradients, strict=True):
        assert ours is not None, name
        assert theirs is not None, name
        scale = max(1.0, float(theirs.abs().max()))
        torch.testing.assert_close(ours, theirs, rtol=tolerance["rtol"], atol=tolerance["atol"] * scale)
