"""GPUs as their makers describe them, and how well one is used: arithmetic that training needs over its peak (MFU)."""

from dataclasses import dataclass

import torch

from multimdm.models import Backbone
from multimdm.process import Hybrid, MultiMask

_ONCE = "adaLN_modulation"
"""Weights that see the time of a sequence, once, and not its tokens."""


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU."""

    flops: float
    """Peak of dense bfloat16 products per second."""
    memory: int
    """Its memory in GB, of 10^9 bytes."""


GPUS = {
    "b200": Gpu(2250e12, 180),
    "h200": Gpu(989e12, 141),
    "h100": Gpu(989e12, 80),
    "h100-nvl": Gpu(835e12, 94),
    "h100-pcie": Gpu(756e12, 80),
    "a100": Gpu(312e12, 80),
    "a100-40": Gpu(312e12, 40),
    "l40s": Gpu(362e12, 48),
    "rtx4090": Gpu(165e12, 24),
}


def known_gpu(name: str) -> Gpu | None:
    """The GPU that a driver calls by this name ("NVIDIA H100 80GB HBM3"); None if it is none of ours.

    The most exact of the kinds whose words are all in the name: "NVIDIA H100 PCIe" is no "h100".
    """
    plain = name.lower().replace(" ", "")
    kinds = [kind for kind in GPUS if all(word in plain for word in kind.split("-"))]
    return GPUS[max(kinds, key=len)] if kinds else None


def share_asked(process: object) -> float:
    """The share of the positions at which a network is asked in training, on average: the hidden ones, or all."""
    return 0.5 if isinstance(process, MultiMask | Hybrid) else 1.0


def flops_per_token(network: Backbone, length: int, asked: float, teacher_calls: int = 0) -> float:
    """Products and sums per token of a text, forward and backward; what is computed again does not count.

    A weight of the blocks takes 2 in the forward pass, 2 for the gradient of what came in and, if it is trained, 2 for
    its own; attention takes 4 L d forward and twice that backward. The head runs at the share `asked` of the positions.
    A teacher adds a forward pass for each of its calls.
    """
    named = [pair for block in network.blocks for pair in block.named_parameters()]
    inside = [x for name, x in named if not name.startswith(_ONCE)]
    weights, trained = sum(x.numel() for x in inside), sum(x.numel() for x in inside if x.requires_grad)
    d = network.config.hidden_dim
    head = network.config.vocab_size * d * asked
    attention = len(network.blocks) * length * d
    forward = 2 * weights + 2 * head + 4 * attention
    backward = 2 * weights + 2 * trained + 4 * head + 8 * attention
    return (1 + teacher_calls) * forward + backward


def utilisation(flops: float, seconds: float, device: torch.device) -> float | None:
    """The share of this GPU's peak, in bfloat16; None where the peak is not known."""
    if device.type != "cuda":
        return None
    gpu = known_gpu(torch.cuda.get_device_name(device))
    return None if gpu is None else flops / (seconds * gpu.flops)
