"""A lower bound of log p(continuation | context) under a diffusion model, by Monte Carlo.

With masks the number of hidden positions is drawn, without which the estimate has no finite variance
(`hidden_counts.py`).
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from multimdm._checks import check_integer
from multimdm.evaluation.hidden_counts import draw_hidden, hide
from multimdm.objectives.base import Network
from multimdm.objectives.times import stratified_times
from multimdm.process import MultiMask, Process, Streams
from multimdm.samplers.process_checks import refuse_tied


@dataclass(frozen=True)
class Bound:
    """An estimate of the evidence lower bound, in nats."""

    value: float
    standard_error: float
    """Of the draws, taken for independent; they are spread evenly over k, so the true one is smaller."""
    draws: int


@torch.no_grad()
def log_likelihood_bound(
    network: Network, process: Process, ids: Int64[Tensor, " L"], given: int, draws: int, seed: int, batch_size: int
) -> Bound:
    """Of ids[given:], where ids[:given] stay visible. Equal seeds give equal estimates, whatever the batch size."""
    check_integer("draws", draws, 1)
    refuse_tied(process, "a likelihood by the number of hidden positions")
    if given >= len(ids):
        return Bound(0.0, 0.0, draws)
    spread = stratified_times(draws, torch.Generator().manual_seed(seed)).to(ids.device)
    parts = []
    for first in range(0, draws, batch_size):
        share = spread[first : first + batch_size]
        streams = Streams.spawn(seed, len(share), first)
        if isinstance(process, MultiMask):
            part = _masked_losses(network, process, ids, given, share, streams)
        else:
            part = _losses(network, process, ids, given, share, streams)
        parts.append(part.cpu())
    values = torch.cat(parts)
    error = float(values.std() / math.sqrt(draws)) if draws > 1 else math.inf
    return Bound(-float(values.mean()), error, draws)


def _masked_losses(
    network: Network, process: MultiMask, ids: Tensor, given: int, spread: Tensor, generator: Streams
) -> Float64[Tensor, " B"]:
    """One estimate for each number in (0, 1), which stands for a number of hidden positions."""
    x_0 = ids.expand(len(spread), -1)
    counted = (torch.arange(len(ids), device=ids.device) >= given).expand(x_0.shape)
    hidden = draw_hidden(process, counted, spread, generator)
    x_t = hide(process, x_0, hidden, generator)
    return hidden.weight * _summed_loss(network, process, x_0, x_t, hidden.t, hidden.positions)


def _losses(
    network: Network, process: Process, ids: Tensor, given: int, t: Tensor, generator: Streams
) -> Float64[Tensor, " B"]:
    """Without masks every position is noised by itself: one estimate for each time."""
    x_0 = ids.expand(len(t), -1)
    visible = torch.arange(len(ids), device=ids.device) < given
    x_t = torch.where(visible, x_0, process.corrupt(x_0, t, generator))
    return _summed_loss(network, process, x_0, x_t, t, process.active(x_t) & ~visible)


def _summed_loss(
    network: Network, process: Process, x_0: Tensor, x_t: Tensor, t: Tensor, active: Tensor
) -> Float64[Tensor, " B"]:
    """Both terms of the loss, per sequence."""
    where = active.nonzero(as_tuple=True)
    clean, state, time = x_0[where], x_t[where], t[where[0]]

    def reduce(logits: Tensor, rows: slice) -> Tensor:
        terms = process.logit_loss(logits, clean[rows], state[rows], time[rows])
        return (terms.reconstruction + terms.identification).double()

    terms = network(x_t, t, active, None, reduce)
    return torch.zeros(len(t), dtype=torch.float64, device=terms.device).index_add(0, where[0], terms)
