"""Chi-square tests of draws against exact distributions."""

import torch
from scipy import stats
from torch import Tensor

REJECT = 1e-4
"""A right law fails below this p-value once in ten thousand tests; seeds are fixed, so a test that passes stays so."""
MUTANT = 1e-8
"""A wrong law must be rejected at this level."""


def chi_square_p(counts: Tensor, probs: Tensor) -> float:
    """The p-value of counts under probabilities; bins with few expected counts are pooled, impossible ones are 0."""
    counts, probs = counts.double().flatten(), probs.double().flatten()
    if bool((counts[probs == 0] > 0).any()):
        return 0.0
    counts, probs = counts[probs > 0], probs[probs > 0]
    expected = probs * counts.sum()
    rare = expected < 10
    if bool(rare.any()):
        counts = torch.cat([counts[~rare], counts[rare].sum()[None]])
        expected = torch.cat([expected[~rare], expected[rare].sum()[None]])
    if len(counts) < 2:
        return 1.0
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return float(stats.chi2.sf(statistic, len(counts) - 1))


def p_of_draws(draws: Tensor, probs: Tensor) -> float:
    """The p-value of integer draws under probabilities; draws outside the states are impossible."""
    if int(draws.min()) < 0 or int(draws.max()) >= probs.numel():
        return 0.0
    return chi_square_p(torch.bincount(draws.flatten(), minlength=probs.numel()), probs)
