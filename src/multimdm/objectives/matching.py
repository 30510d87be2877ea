"""Matching: every text is given its own noise, so that x_1 tells of x_0 while both keep their laws.

Among n texts and n noise strings, text i is given the string m of

    argmin over permutations sigma of sum_i cost(i, sigma(i)),    cost(i, m) = -sum_l log f_1(x_0^l(i) | x_1(m)),

where f_1 is the network at t = 1. A permutation of whole strings leaves the set of strings as it was drawn, so x_1 is
still uniform, all positions together. What x_1 tells of x_0 is at most log n nats: given the other pairs' texts and the
set of strings, it is one choice among n.

Blocks (`match_blocks`) are another matter. Permuting the strings' blocks at one place, within groups of texts that are
close, leaves the law of that block as it was. But two blocks of one string may now come from two strings, each chosen
for the same text: where two places of the text depend on each other, so do the two blocks. x_1 is then uniform block by
block and not as a whole, while a sampler draws it uniform as a whole.
"""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from multimdm.objectives.settings import Solver
from multimdm.process.checks import require

_ROWS = 256
"""Rows of logits that are held at once, where normalisers are needed."""


@runtime_checkable
class Head(Protocol):
    """What matching needs of a network, beside its features: a head that is a linear map."""

    def logits(self, features: Tensor) -> Tensor:
        """Of all tokens."""
        ...

    def sequence_logits(self, features: Tensor, tokens: Tensor) -> Tensor:
        """[k, n]: sums over positions of the logits of k sequences of tokens, at the features of n inputs."""
        ...


@torch.no_grad()
def matching_cost(
    head: Head, features: Float[Tensor, "n L d"], ids: Int64[Tensor, "k L"], valid: Bool[Tensor, "k L"] | None = None
) -> Float[Tensor, "k n"]:
    """cost(i, m) = -sum_l log f_1(x_0^l(i) | x_1(m)) over the valid positions, up to a constant for each m.

    log f = logit - log-normaliser, and the normaliser depends on m and l alone: summed over all positions it is a
    constant of column m, which no assignment can change. So it is left out, and with it the map to all V logits. Only
    if texts have padding, which is not counted, do they differ in what they would sum, and the normalisers are
    computed.
    """
    if valid is None or bool(valid.all()):
        return -head.sequence_logits(features, ids)
    own = [
        head.sequence_logits(features[:, place, None], ids[:, place, None]).where(valid[:, place, None], 0.0)
        for place in range(ids.shape[1])
    ]
    return valid.float() @ _normalisers(head, features).T - torch.stack(own).sum(0)


def _normalisers(head: Head, features: Float[Tensor, "n L d"]) -> Float[Tensor, "n L"]:
    """log sum_a exp(logit of a), a few rows at a time."""
    parts = [head.logits(rows).float().logsumexp(-1) for rows in features.flatten(0, 1).split(_ROWS)]
    return torch.cat(parts).view(features.shape[:2])


def assign(cost: Float[Tensor, "n n"], solver: Solver = "exact") -> Int64[Tensor, " n"]:
    """The column of each row: a permutation of small total cost; the least, if the solver is exact."""
    require(
        cost.ndim == 2 and cost.shape[0] == cost.shape[1],
        f"cost must be a square table, one row per text and one column per noise; got shape {list(cost.shape)}",
    )
    require(bool(cost.isfinite().all()), "the cost of matching is not a number: the network's predictions are broken")
    return _exact(cost) if solver == "exact" else _greedy(cost)


def _exact(cost: Tensor) -> Int64[Tensor, " n"]:
    try:
        from scipy.optimize import linear_sum_assignment
    except ModuleNotFoundError:
        raise ValueError("matching needs the package scipy: pip install 'multimdm[train]'") from None
    _, columns = linear_sum_assignment(cost.double().cpu().numpy())
    return torch.from_numpy(columns).long()


def _greedy(cost: Tensor) -> Int64[Tensor, " n"]:
    """Again and again the pairs that are each other's best: the best pair of all that are left is always among them.

    Constants of rows and columns do not matter to an assignment, but they would to this order; so they are taken off.
    """
    cost = cost.double().cpu()
    left = cost - cost.mean(0) - cost.mean(1, keepdim=True)
    rows, columns, taken = torch.arange(len(cost)), torch.arange(len(cost)), torch.empty(len(cost), dtype=torch.long)
    while len(rows):
        best = left.argmin(1)
        mutual = left.argmin(0)[best] == torch.arange(len(rows))
        taken[rows[mutual]] = columns[best[mutual]]
        free = torch.ones(len(columns), dtype=torch.bool)
        free[best[mutual]] = False
        rows, columns, left = rows[~mutual], columns[free], left[~mutual][:, free]
    return taken


def close_groups(cost: Float[Tensor, "n n"], group: int) -> Int64[Tensor, "groups group"]:
    """Texts divided into groups of close ones, where row i of the cost is matched with column i.

    Two texts are close if exchanging their noise costs little. One after another, a text that is left gathers those
    of the rest that are closest to it.
    """
    n = len(cost)
    exchange = cost + cost.T - cost.diagonal()[:, None] - cost.diagonal()
    exchange.fill_diagonal_(-torch.inf)  # itself first
    left, groups = torch.ones(n, dtype=torch.bool), []
    for _ in range(n // group):
        first = int(left.int().argmax())
        members = exchange[first].masked_fill(~left, torch.inf).argsort(stable=True)[:group]
        left[members] = False
        groups.append(members)
    return torch.stack(groups)


def match_blocks(
    whole: Int64[Tensor, " n"], costs: Float[Tensor, "blocks n n"], group: int, solver: Solver = "exact"
) -> Int64[Tensor, "n blocks"]:
    """Which string each block of each text's noise is taken from, given the strings that whole texts were matched with.

    costs[b, i, m] is what block b of text i costs at block b of string m. Within a group of close texts the blocks at
    each place are matched anew, among the strings of the group.
    """
    matched = costs[:, :, whole]
    origin = whole[:, None].repeat(1, len(costs))
    for members in close_groups(matched.sum(0), group):
        for b, cost in enumerate(matched):
            inside = assign(cost[members][:, members], solver)
            origin[members, b] = whole[members[inside]]
    return origin
