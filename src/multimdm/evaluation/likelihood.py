"""A lower bound of log p(continuation | context) under a diffusion model, by Monte Carlo.

With masks the number of hidden positions is drawn, without which the estimate has no finite variance
(`hidden_counts.py`).
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor

from multimdm._checks import check_integer
from multimdm.evaluation.hidden_counts import noised
from multimdm.objectives.base import Network, rows_on
from multimdm.objectives.times import stratified_times
from multimdm.process import Process, Streams
from multimdm.samplers.process_checks import refuse_tied


@dataclass(frozen=True)
class Bound:
    """An estimate of the evidence lower bound, in nats."""

    value: float
    standard_error: float
    """The error as if draws were independent. They are spread evenly over k, so the true one is smaller."""
    draws: int


@torch.no_grad()
def log_likelihood_bound(
    network: Network, process: Process, ids: Int64[Tensor, " L"], given: int, draws: int, seed: int, batch_size: int
) -> Bound:
    """The bound for ids[given:], where ids[:given] stay visible. Equal seeds give equal estimates at any batch size."""
    check_integer("draws", draws, 1)
    refuse_tied(process, "a likelihood by the number of hidden positions")
    if given >= len(ids):
        return Bound(0.0, 0.0, draws)
    x_0 = ids.expand(batch_size, -1)
    counted = (torch.arange(len(ids), device=ids.device) >= given).expand(batch_size, -1)
    spread = stratified_times(draws, torch.Generator().manual_seed(seed)).to(ids.device)
    parts = []
    for first in range(0, draws, batch_size):
        numbers = spread[first : first + batch_size]
        num = len(numbers)
        path = process.path_to()
        state = noised(path, x_0[:num], counted[:num], numbers, Streams.spawn(seed, num, first))
        rows = rows_on(path, x_0[:num], state.x_t, state.t, state.positions, None)
        parts.append((state.weight * rows.by_sequence(network).sum(0)).cpu())
    values = torch.cat(parts)
    error = float(values.std() / math.sqrt(draws)) if draws > 1 else math.inf
    return Bound(-float(values.mean()), error, draws)
