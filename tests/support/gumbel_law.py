"""The exact joint law of a shared-Gumbel path at two times."""

from itertools import pairwise

import torch


def joint_law(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """P(argmax_z {log p_z + g_z} = a, argmax_z {log q_z + g_z} = b) for shared Gumbels, as a matrix [a, b].

    With exponentials e = exp(-g), a is first at p and b at q. For a = b it is 1 / sum_z max(p_z / p_a, q_z / q_a). For
    a != b, integrating over e_a leaves, with r = e_b / e_a between p_b / p_a and q_b / q_a, the integral of
    1 / (1 + r + sum_z max(p_z / p_a, r q_z / q_b))^2 over z outside {a, b}, whose denominator is piecewise linear in r.
    """
    n = len(first)
    law = torch.zeros(n, n, dtype=torch.float64)
    alive = [z for z in range(n) if first[z] > 0 and second[z] > 0]
    for a in alive:
        p = {z: float(first[z] / first[a]) for z in alive}
        same = sum(max(p[z], float(second[z] / second[a])) for z in alive)
        law[a, a] = 1 / same
        for b in (z for z in alive if z != a):
            q = {z: float(second[z] / second[b]) for z in alive}
            law[a, b] = _integral(p[b], 1 / q[a], [(p[z], q[z]) for z in alive if z not in (a, b)])
    return law


def _integral(low: float, high: float, others: list[tuple[float, float]]) -> float:
    """The integral over r in [low, high] of 1 / (1 + r + sum max(p, r q))^2, piece by piece."""
    if high <= low:
        return 0.0
    edges = sorted({low, high, *(p / q for p, q in others if low < p / q < high)})
    total = 0.0
    for left, right in pairwise(edges):
        middle = (left + right) / 2
        constant = 1 + sum(p for p, q in others if p >= middle * q)
        slope = 1 + sum(q for p, q in others if p < middle * q)
        total += (right - left) / ((constant + slope * left) * (constant + slope * right))
    return total
