"""What is added to the copies of a mask's row, so that the new masks differ from the first step on.

Copies give the same predictions, and a network has to find out that they are different things, let alone what they
mean. Noise makes them different. The embeddings of the tokens for which a mask is designated also say what it means:
a network that knows its tokens can make something of their mean before it has learnt anything of masks.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor


def noise_offsets(copies: Float[Tensor, "M d"], scale: float, seed: int) -> Float[Tensor, "M d"]:
    """Gaussian noise, `scale` times as large as the entries of the copies."""
    noise = torch.randn(copies.shape, generator=torch.Generator().manual_seed(seed)).to(copies)
    return scale * _size(copies) * noise


def token_offsets(
    copies: Float[Tensor, "M d"], tokens: Float[Tensor, "V d"], assignment: Int64[Tensor, " V"], scale: float
) -> Float[Tensor, "M d"]:
    """The mean of the rows of each mask's tokens, less the mean of all rows, made as large as that noise would be.

    One factor serves all masks, so that a mask whose tokens are alike is moved further than others. A single mask stays
    where it is.
    """
    if len(copies) == 1:
        return torch.zeros_like(copies)
    sums = torch.zeros(copies.shape, dtype=torch.float64, device=tokens.device)
    sums.index_add_(0, assignment.to(tokens.device), tokens.double())
    counts = torch.bincount(assignment, minlength=len(copies)).to(sums)
    means = sums / counts[:, None] - tokens.double().mean(0)
    return (scale * _size(copies).double() / _size(means) * means).to(copies)


def _size(rows: Tensor) -> Tensor:
    """Root mean square of the entries."""
    return rows.square().mean().sqrt()
