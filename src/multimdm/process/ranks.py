"""How far Gaussian noise buries a one-hot: the expected rank of its coordinate, and the noise that gives a rank.

Of w = onehot(x_0) + sigma eps in R^V, the rank is the share of coordinates that exceed the one of x_0. Each of the
V - 1 others does so with probability Phi(-1 / (sigma sqrt 2)), since its difference to the clean one is
N(-1, 2 sigma^2).
"""

import math

import torch
from jaxtyping import Float64
from torch import Tensor


def expected_rank(sigma: Float64[Tensor, "*s"], vocab_size: int) -> Float64[Tensor, "*s"]:
    """(V - 1) / V Phi(-1 / (sigma sqrt 2)): from 0 without noise to (V - 1) / 2V, where nothing is left of x_0."""
    return (vocab_size - 1) / vocab_size * torch.special.ndtr(-1 / (sigma * math.sqrt(2)))


def sigma_of_rank(rank: Float64[Tensor, "*s"], vocab_size: int) -> Float64[Tensor, "*s"]:
    """-1 / (sqrt 2 Phi^-1(rank V / (V - 1))), the inverse; finite for ranks below (V - 1) / 2V."""
    return -1 / (math.sqrt(2) * torch.special.ndtri(rank * vocab_size / (vocab_size - 1)))
