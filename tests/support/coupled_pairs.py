"""All pairs of states (x_s, x_t) of two positions, with their exact probabilities, and what they teach."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from multimdm.objectives.settings import Coupling
from multimdm.process import Process
from support.gumbel_law import joint_law

Tie = Coupling | Literal["apart"]
"""apart: shared Gumbels of the masks alone, and a reveal that is independent of them."""


@dataclass(frozen=True)
class Pairs:
    """Every possible (x_0, x_s, x_t), each [n, 2], and its probability."""

    x_0: Tensor
    x_s: Tensor
    x_t: Tensor
    probability: Tensor


def coupled_pairs(process: Process, law: Tensor, s: float, t: float, coupling: Tie) -> Pairs:
    """Data with the law [V, V]; given x_0 the positions are independent."""
    joint = torch.stack([one_position(process, token, s, t, coupling) for token in range(process.vocab_size)])
    whole = torch.einsum("ab,aik,bjl->abijkl", law, joint, joint)
    where = whole.nonzero()
    return Pairs(where[:, 0:2], where[:, 2:4], where[:, 4:6], whole[tuple(where.T)])


def one_position(process: Process, token: int, s: float, t: float, coupling: Tie) -> Tensor:
    """P(x_s, x_t | x_0) of one position, [S, S]."""
    times = torch.tensor([s, t], dtype=torch.float64)
    first, second = process.marginal(torch.full((2,), token), times)
    if coupling == "gumbel":
        return joint_law(first, second)
    if coupling == "apart":
        V = process.vocab_size
        hidden_s, hidden_t = first[V:].sum(), second[V:].sum()
        law = torch.zeros(process.num_states, process.num_states, dtype=torch.float64)
        law[token, token] = 1 - hidden_t
        law[token, V:] = (hidden_t - hidden_s) * second[V:] / hidden_t
        law[V:, V:] = hidden_s * joint_law(first[V:] / hidden_s, second[V:] / hidden_t)
        return law
    if coupling == "markov":
        return first[:, None] * process.transition(torch.arange(process.num_states), times[0], times[1])
    assert coupling == "independent"
    return first[:, None] * second


def taught(process: Process, pairs: Pairs, predictions: Tensor) -> Tensor:
    """f_s [n, 2, V]: the prediction at x_s, from a table [S, S, 2, V]; where the token is visible, it and nothing else.

    The boundary condition of Sec. 3.3, which holds at every time for a visible token.
    """
    V = process.vocab_size
    known = F.one_hot(pairs.x_s.clamp_max(V - 1), V).double()
    return torch.where((pairs.x_s < V)[..., None], known, predictions[pairs.x_s[:, 0], pairs.x_s[:, 1]])


def average_given_x_t(process: Process, pairs: Pairs, values: Tensor) -> Tensor:
    """E[values | x_t] as a table [S, S, ...]; what cannot occur is not a number."""
    S = process.num_states
    code = pairs.x_t[:, 0] * S + pairs.x_t[:, 1]
    mass = torch.zeros(S * S, dtype=torch.float64).index_add(0, code, pairs.probability)
    weighted = pairs.probability.reshape(-1, *[1] * (values.ndim - 1)) * values
    total = torch.zeros(S * S, *values.shape[1:], dtype=torch.float64).index_add(0, code, weighted)
    return (total / mass.reshape(-1, *[1] * (values.ndim - 1))).unflatten(0, (S, S))
