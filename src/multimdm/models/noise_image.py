"""The image of Gaussian noise of R^V in the space of the embeddings, from as few numbers as it has dimensions."""

import torch
from jaxtyping import Float
from torch import Tensor

from multimdm.process.places import exact


def noise_image(noise: Float[Tensor, "B L n"], rows: Float[Tensor, "V d"]) -> Float[Tensor, "B L d"]:
    """sum_v eps_v rows_v of standard Gaussians eps: from eps itself (n = V), or in law from n = d Gaussians.

    The sum is a Gaussian with the covariance G = rows^T rows, as is R^T z for d Gaussians z and G = R^T R (Cholesky).
    The law is the same for every table of rows, and so is the mean of any gradient. A position costs d^2 instead of d V
    multiplications, and G once as much as d positions of d V: n = d pays for batches of more positions than that.
    """
    V, d = rows.shape
    if noise.shape[-1] not in (V, d):
        raise ValueError(
            f"noise must have {V} numbers per position (one per token) or {d} (the width); got {noise.shape[-1]}"
        )
    with torch.autocast(rows.device.type, enabled=False):  # bfloat16 would round the sums of thousands of rows
        return noise.to(rows.dtype) @ (rows if noise.shape[-1] == V else _root(rows))


def _root(rows: Float[Tensor, "V d"]) -> Float[Tensor, "d d"]:
    """R with R^T R = rows^T rows, up to the rounding of the rows' precision."""
    wide = torch.promote_types(rows.dtype, torch.float32)
    gram = exact(rows.to(wide).T @ rows.to(wide))
    d = len(gram)
    # Of embeddings that do not fill the space G has no root: lift it by what rounding has done to it anyway.
    lift = torch.finfo(wide).eps * d**0.5 * gram.detach().diagonal().mean()
    lifted = gram + lift * torch.eye(d, dtype=gram.dtype, device=gram.device)
    return torch.linalg.cholesky_ex(lifted).L.mT.to(rows.dtype).to(rows.device)
