"""-log p of known tokens under softmax(logits)."""

from typing import Literal

from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from multimdm.process import fused_readout
from multimdm.process.fusing import fuses
from multimdm.process.places import reading
from multimdm.process.precision import widened


@reading
def cross_entropy(
    logits: Float[Tensor, "N V"], clean: Int64[Tensor, " N"], reduction: Literal["none", "sum"]
) -> Float[Tensor, "..."]:
    """Row by row or summed, in float32 or better; on a GPU with fewer passes over the rows than torch's own."""
    if not fuses(logits):
        return F.cross_entropy(widened(logits), clean, reduction=reduction)
    loss = -fused_readout.picked(logits, clean)
    return loss.sum() if reduction == "sum" else loss
