"""Tests of averages over many draws against exact expectations."""

import torch
from scipy import stats
from torch import Tensor


def p_of_means(means: Tensor, expected: Tensor, variance: Tensor, num: int) -> float:
    """The p-value of averages over `num` draws with these exact moments; the worst of them, times their number.

    What has no variance must be as expected.
    """
    means, expected, variance = (x.detach().double().flatten() for x in (means, expected, variance))
    fixed = variance <= 1e-14
    if not torch.allclose(means[fixed], expected[fixed], rtol=1e-9, atol=1e-9):
        return 0.0
    deviations = ((means - expected)[~fixed] / (variance[~fixed] / num).sqrt()).abs()
    return min(1.0, 2 * float(stats.norm.sf(float(deviations.max()))) * len(deviations))
