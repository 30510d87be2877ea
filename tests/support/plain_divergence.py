"""Divergences written as they are defined, over whole tables, for autograd to differentiate."""

import torch
from torch import Tensor

from multimdm.objectives.settings import Divergence

KINDS: tuple[Divergence, ...] = ("reverse_kl", "forward_kl", "mse", "tvd")


def plain_divergence(kind: Divergence, student: Tensor, teacher: Tensor) -> Tensor:
    """From log-probabilities [..., V] of both: the sum over the columns that at least one of them can predict."""
    possible = (student > -torch.inf) | (teacher > -torch.inf)
    log_p, log_q = student.masked_fill(~possible, 0.0), teacher.masked_fill(~possible, 0.0)
    p, q = log_p.exp() * possible, log_q.exp() * possible
    if kind == "reverse_kl":  # KL(student || teacher)
        return (p * (log_p - log_q)).sum(-1)
    if kind == "forward_kl":  # KL(teacher || student)
        return (q * (log_q - log_p)).sum(-1)
    return ((p - q) ** 2).sum(-1) if kind == "mse" else (p - q).abs().sum(-1) / 2
