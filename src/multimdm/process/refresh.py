"""The refreshing chain: stay where you are with probability b, else move to any of n states uniformly.

The mask sector of `MultiMask` is this chain on M masks started at the designated one; `Uniform` is this chain on
the V tokens. Both bridges between two times therefore come from here. For a chain that starts at `target` and is
at `current` at time t, the state at s < t is, by Bayes' rule, a mixture of three: the target, the current state, or
any state uniformly. All three weights are sums of positive terms, finite for every reachable current state.

Shapes: targets, current states and weights are [...]; distributions over the n states [..., n].
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from multimdm.process.draws import pick
from multimdm.process.schedule import Retention


@dataclass(frozen=True)
class BridgeWeights:
    """Where the chain is at s, given its start and its state at t; the three sum to one."""

    target: Tensor
    current: Tensor
    anywhere: Tensor

    def to(self, dtype: torch.dtype) -> "BridgeWeights":
        """The same weights in another dtype."""
        return BridgeWeights(self.target.to(dtype), self.current.to(dtype), self.anywhere.to(dtype))


def bridge_weights(same: Tensor | bool, s: Retention, t: Retention, between: Retention, n: int) -> BridgeWeights:
    """Weights of r_s(j) [b 1{j=k} + (1-b)/n] / r_t(k), with `same` telling whether k is the target.

    The mask factor of Eq. (two_time_backward_main), multiplied through by n.
    """

    def held(r: Retention) -> Tensor:
        """n times the probability of being at k."""
        if isinstance(same, bool):
            return n * r.kept + r.lost if same else r.lost
        return torch.where(same, n * r.kept + r.lost, r.lost)

    # r_s(j) [b 1{j=k} + (1-b)/n] with r_s(j) = kept_s 1{j=target} + lost_s / n: three terms, each over n r_t(k)
    total = held(t)
    return BridgeWeights(
        target=s.kept * held(between) / total,
        current=s.lost * between.kept / total,
        anywhere=s.lost * between.lost / total,
    )


def bridge_posterior(weights: BridgeWeights, target: Tensor, current: Tensor, n: int) -> Tensor:
    """The bridge as a distribution [..., n]."""
    shape = torch.broadcast_shapes(target.shape, weights.anywhere.shape)
    result = (weights.anywhere / n).expand(shape)[..., None].repeat(*[1] * len(shape), n)
    for index, weight in ((target, weights.target), (current, weights.current)):
        result.scatter_add_(-1, index[..., None], weight.expand(shape)[..., None])
    return result


def bridge_average(mass: Tensor, current: Tensor, same: BridgeWeights, other: BridgeWeights, n: int) -> Tensor:
    """The bridge averaged over a target with distribution `mass` [..., n]; `same` is for target = current."""
    index = current[..., None]
    at_current = mass.gather(-1, index)
    elsewhere = mass.scatter(-1, index, 0.0)
    rest = elsewhere.sum(-1, keepdim=True)
    # sum over targets of mass(target) times the three weights: anywhere, at the current state, at the target
    spread = (at_current * same.anywhere[..., None] + rest * other.anywhere[..., None]) / n
    stay = at_current * (same.target + same.current)[..., None] + rest * other.current[..., None]
    return (elsewhere * other.target[..., None] + spread).scatter_add(-1, index, stay)


def bridge_draw(u: Tensor, weights: BridgeWeights, target: Tensor, current: Tensor, n: int) -> Tensor:
    """A draw from the bridge by one uniform number per position, in O(1) whatever n."""
    to_current = weights.target + weights.current
    anywhere = pick(((u - to_current) / weights.anywhere).nan_to_num(0.0).clamp(0.0, 1.0), n)
    return torch.where(u < weights.target, target, torch.where(u < to_current, current, anywhere))
