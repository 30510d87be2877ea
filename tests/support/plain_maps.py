"""The maps of DUO and CANDI from noise to what it hides, as their papers have them; the code needs other forms."""

import math

import torch
from jaxtyping import Float64
from torch import Tensor

from multimdm.process.shared_noise import one_minus_alpha_of_snr, snr_of_alpha


def alpha_of_signal(signal: Float64[Tensor, "*s"], vocab_size: int) -> Float64[Tensor, "*s"]:
    """alpha = T(a~) = V/(V-1) (int phi(z - snr) Phi(z)^(V-1) dz - 1/V) for the Gaussian signal a~ in [0, 1)."""
    return 1 - one_minus_alpha_of_snr(signal / torch.sqrt((1 - signal) * (1 + signal)), vocab_size)


def signal_of_alpha(alpha: Float64[Tensor, "*s"], vocab_size: int) -> Float64[Tensor, "*s"]:
    """The inverse of T: the Gaussian signal a~ whose argmax path has visibility alpha."""
    snr = snr_of_alpha(alpha, 1 - alpha, vocab_size)
    return torch.where(torch.isinf(snr), 1.0, snr / torch.sqrt(1 + snr**2))


def expected_rank(sigma: Float64[Tensor, "*s"], vocab_size: int) -> Float64[Tensor, "*s"]:
    """(V - 1) / V Phi(-1 / (sigma sqrt 2)): from 0 without noise to (V - 1) / 2V, where nothing is left of x_0."""
    return (vocab_size - 1) / vocab_size * torch.special.ndtr(-1 / (sigma * math.sqrt(2)))
