"""In which arithmetic networks compute. Imports torch on use only."""

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

Precision = Literal["auto", "float32", "tf32", "bfloat16"]
"""float32; float32 with products of matrices rounded to 10 bits on GPUs that can; or products in bfloat16. auto is
float32 for a DiT, and for LLaDA what is stored."""


def has_bfloat16(device: "torch.device") -> bool:
    """Whether it computes in bfloat16 itself: GPUs before Ampere emulate it, slower than float32."""
    import torch

    return device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)


def set_up(precision: Precision, device: "torch.device") -> None:
    """Refuse what the device cannot do; switch on what is switched on for the whole program."""
    import torch

    if precision == "bfloat16" and not has_bfloat16(device):
        raise ValueError(f"precision bfloat16: the GPU {device} only emulates it; use float32 or tf32")
    if device.type == "cuda" and precision != "auto":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
