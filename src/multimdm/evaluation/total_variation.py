"""How far the law of samples is from another one: total variation of tokens, and of pairs of neighbours.

A sequence is seen as a set of events, numbered from 0. The distance is that between two distributions of an event:
1/2 sum_e |p(e) - q(e)|, from 0 if they are equal to 1 if they have no event in common.
"""

import math

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from multimdm.evaluation.bootstrap import LEVEL, Estimate

_HALVES = 1000


def token_events(ids: Int64[Tensor, "num L"], vocab_size: int) -> Int64[Tensor, "num L"]:
    """l V + x^l: a token and its position, L V events in all.

    Every position has a share of 1/L, so 1/2 sum_{l,v} |p_l(v)/L - q_l(v)/L| is the mean over positions of the
    distances 1/2 sum_v |p_l(v) - q_l(v)| there.
    """
    return ids + vocab_size * torch.arange(ids.shape[1], device=ids.device)


def pair_events(ids: Int64[Tensor, "num L"], vocab_size: int) -> Int64[Tensor, "num pairs"]:
    """V x^l + x^{l+1}: a token and the next one, wherever they are; V^2 events in all."""
    return vocab_size * ids[:, :-1] + ids[:, 1:]


def frequencies(events: Int64[Tensor, "num n"], size: int) -> Float64[Tensor, " size"]:
    """The share of each of `size` events among all of them."""
    return torch.bincount(events.flatten(), minlength=size).double() / events.numel()


def total_variation(p: Float64[Tensor, " size"], q: Float64[Tensor, " size"]) -> float:
    """1/2 sum_e |p(e) - q(e)|."""
    return float((p - q).abs().sum()) / 2


def expected_distance(law: Float64[Tensor, " size"], num: int) -> float:
    """E[1/2 sum_e |f_e - p(e)|] for the shares f of `num` independent draws from p itself, exactly.

    The number of draws of an event is binomial, with mean absolute deviation 2 m C(n, m) p^m (1-p)^(n-m+1), where
    m = floor(np) + 1 (de Moivre).
    """
    p, n = law[(law > 0) & (law < 1)], torch.tensor(float(num), dtype=torch.float64)
    m = (n * p).floor() + 1
    log_choose = torch.lgamma(n + 1) - torch.lgamma(m + 1) - torch.lgamma(n - m + 1)
    log_deviation = m.log() + log_choose + m * p.log() + (n - m + 1) * torch.log1p(-p)
    return float(log_deviation.exp().sum()) / num


def distance(events: Int64[Tensor, "num n"], law: Float64[Tensor, " size"], seed: int = 0) -> Estimate:
    """1/2 sum_e |f_e - q_e|, with f_e the share of event e in all samples together and q the law to compare with.

    Few samples are far from any law by chance, even from their own. So the value is one of sets of as many samples, to
    be read beside what sets from q itself have, and the interval is for its expectation over such sets.

    The interval is by random halves of the samples (the jackknife that deletes half of them). The mean of h of n
    samples varies about that of all with (n - h)/h times the variance of the mean of all, so halves vary as much as new
    sets would. They are smaller, and so farther from q: their interval is moved to the value. Near q it is somewhat too
    wide. A bootstrap repeats samples, which adds chance of its own: its distances are larger too and, with few samples,
    spread up to three times too far.
    """
    found, places = events.unique(return_inverse=True)
    expected = law[found]
    elsewhere = (1 - expected.sum()).clamp_min(0)  # of events that no sample has

    def far(part: Tensor) -> float:
        return float((frequencies(part, len(found)) - expected).abs().sum() + elsewhere) / 2

    value, num = far(places), len(events)
    if num < 2:
        return Estimate(value)
    half, generator = num // 2, torch.Generator().manual_seed(seed)
    parts = (places[torch.randperm(num, generator=generator)[:half]] for _ in range(_HALVES))
    distances = np.array([far(part) for part in parts])
    ends = np.quantile(distances, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) - distances.mean()
    low, high = value + math.sqrt(half / (num - half)) * ends
    return Estimate(value, max(0.0, float(low)), min(1.0, float(high)))
