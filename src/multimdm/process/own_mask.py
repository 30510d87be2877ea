"""What a position's own mask tells of its token, joined to a prediction from the context by Bayes' rule.

A hidden token a is at mask j with probability beta_t + (1 - beta_t)/M if j is its designated mask, else (1 - beta_t)/M.
So the tokens of the mask that is seen are more probable than the context alone makes them, by the factor
1 + M beta_t / (1 - beta_t), whose logarithm joins their logits. A network need not learn this, for it is known.

It is written as what all other tokens lose, the factor A = (1 - beta_t) / (M beta_t + 1 - beta_t). At t = 1 it is 1
exactly: nothing joins. Towards t = 0 the evidence grows without bound; at t = 0, where nothing is hidden and no state
asks, A is 0 and only the tokens of the mask remain. Their own logits are untouched: nothing infinite is ever added.

Shapes: logits and weights [*shape, V]; the factor of the other tokens [*shape]; masses of N packed rows [N, M].
"""

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from multimdm.process.places import beside
from multimdm.process.schedule import ScheduleValues


def others_factor(values: ScheduleValues, num_masks: int) -> Float64[Tensor, "..."]:
    """A = (1 - beta) / (M beta + 1 - beta): p(mask j | a token of another mask) / p(mask j | a token of j)."""
    return values.one_minus_beta / (num_masks * values.beta + values.one_minus_beta)


def join_logits(
    logits: Float[Tensor, "*shape V"], explained: Bool[Tensor, "*shape V"], others: Float64[Tensor, "*shape"]
) -> Float[Tensor, "*shape V"]:
    """Posterior logits; tokens whose mask is seen are `explained`, and all others have the factor `others`."""
    return logits + torch.where(explained, 0.0, beside(others.log().to(logits.dtype), logits)[..., None])


def join_weights(
    weights: Float[Tensor, "*shape V"], explained: Bool[Tensor, "*shape V"], others: Float64[Tensor, "*shape"]
) -> Float[Tensor, "*shape V"]:
    """Posterior probabilities, up to a factor per position, from those that the context gives."""
    return weights * torch.where(explained, 1.0, beside(others.to(weights.dtype), weights)[..., None])


def join_masses(
    log_prob: Float[Tensor, " N"],
    masses: Float64[Tensor, "N M"],
    designated: Int64[Tensor, " N"],
    current: Int64[Tensor, " N"],
    others: Float64[Tensor, " N"],
) -> tuple[Float64[Tensor, " N"], Float64[Tensor, "N M"]]:
    """What a loss needs of a row of the posterior, log p(x_0) and the group sums m = T p, from that of the context.

    With k the mask that is seen and Z = m_k + A (sum of the other m), the posterior has log p(x_0) - log Z if k is
    designated for x_0, else log p(x_0) + log A - log Z; and its group sums are m_k / Z, and A m_j / Z for the others.
    No table of the size of the log-probabilities is made.
    """
    factors = others[:, None].expand_as(masses).scatter(1, current[:, None], 1.0)
    weighted = masses * factors
    Z = weighted.sum(-1)
    joined = log_prob + torch.where(designated == current, 0.0, others.log()) - Z.log()
    return joined, weighted / Z[:, None]
