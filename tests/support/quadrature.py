"""Integrals over t in (0, 1) of functions with weak singularities at the ends."""

import numpy as np
import torch


def unit_interval(n: int = 200) -> tuple[torch.Tensor, torch.Tensor]:
    """Gauss-Legendre in u with t = u^4 (35 - 84 u + 70 u^2 - 20 u^3), which is flat at both ends."""
    x, w = np.polynomial.legendre.leggauss(n)
    u, w = torch.tensor((x + 1) / 2), torch.tensor(w / 2)
    t = u**4 * (35 - 84 * u + 70 * u**2 - 20 * u**3)
    keep = t < 1  # the last nodes round to 1, where some integrands are infinite (and integrable)
    return t[keep], (w * 140 * u**3 * (1 - u) ** 3)[keep]
