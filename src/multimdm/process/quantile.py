"""Quantile noise: the mask is the draw.

Who writes from left to right draws token l by one uniform number: the token in whose cell it falls. All that is random
about a text is its L numbers. Quantile noise gives a text, as its x_1, *the numbers that would draw it*, cut into M
buckets of equal size, one mask for each. Then x_1 is uniform, as the prior says, and it tells nearly everything.

With the conditionals q(a | x^{<l}) of a teacher, the tokens in some order, and F_l(a) the mass of those before a:

    C_l(a) = [F_l(a), F_l(a) + q(a | x^{<l}))           the cell of a
    u_l ~ uniform on C_l(x_0^l),  x_1^l = floor(M u_l)    the number of a token that is there, and its mask
    Q_l(k | x_0) = |C_l(x_0^l) ∩ [k/M, (k+1)/M)| / |C_l(x_0^l)|

If x_0 ~ q, all u_l are uniform and independent (Rosenblatt 1952); if x_0 ~ p_0, KL(law of x_1 || uniform) is at most
KL(p_0 || q). Everything here is float64: a cell may be as small as 1e-300.

Shapes: x_0, u, x_1 and the cells are [*shape]; the teacher's conditionals [*shape, V]; Q_l(. | x_0) is [*shape, M].
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from multimdm._checks import check_integer, require
from multimdm.process.base import Ids
from multimdm.process.checks import check_ids, check_table
from multimdm.process.draws import Generator, invert_cdf, pick, uniform

Order = Literal["id", "probable"] | Int64[Tensor, " V"]
"""Which cell comes first: that of the smaller id, of the more probable token (equals by id), or of the smaller rank in
a table with a place for every token."""
_MOST_MASKS = 2**20


class Cells(NamedTuple):
    """Where the numbers of given tokens lie: [lower, lower + width) within [0, 1)."""

    lower: Float64[Tensor, "*shape"]
    width: Float64[Tensor, "*shape"]
    """The teacher's probability of the token; 1 where nothing is drawn, as behind the end of a text."""


class Ordered(NamedTuple):
    """Probabilities in the order of the cells, and whose they are."""

    probs: Float64[Tensor, "*rows V"]
    tokens: Int64[Tensor, "*rows V"]


def cells(probs: Float[Tensor, "*shape V"], x_0: Ids, order: Order = "id") -> Cells:
    """C_l(x_0^l), given q(. | x^{<l}) at every position (rows need not sum to one).

    The mass before a token is a sum of its own, not a difference of running sums: small cells keep all their digits.
    """
    check_ids("x_0", x_0, probs.shape[-1])
    check_table("probs", probs, x_0, probs.shape[-1])
    probs = probs.double()
    own = x_0[..., None].long()
    width = probs.gather(-1, own)
    tokens = torch.arange(probs.shape[-1], device=probs.device)
    # which tokens b lie before x_0, so that F_l(x_0) = sum of q(b) over them
    if isinstance(order, Tensor):
        before = _ranks(order, probs)[tokens] < _ranks(order, probs)[own]
    elif order == "id":
        before = tokens < own
    else:
        before = (probs > width) | ((probs == width) & (tokens < own))
    total = probs.sum(-1)
    return Cells(torch.where(before, probs, 0.0).sum(-1) / total, width[..., 0] / total)


def numbers(cells: Cells, generator: Generator = None) -> Float64[Tensor, "*shape"]:
    """u_l, uniform within the cells; below 1, whatever rounding does."""
    r = uniform(cells.lower.shape, generator, cells.lower.device)
    return (cells.lower + cells.width * r).clamp_max(1 - 2.0**-53)


def buckets(u: Float64[Tensor, "*shape"], num_masks: int) -> Int64[Tensor, "*shape"]:
    """floor(M u): 0 .. M-1."""
    return pick(u, check_masks(num_masks))


def bucket_law(cells: Cells, num_masks: int) -> Float64[Tensor, "*shape M"]:
    """Q_l(k | x_0) for all k: how a cell is shared out among the buckets."""
    edges = torch.arange(check_masks(num_masks) + 1, dtype=torch.float64, device=cells.lower.device)
    return _share_below(cells, edges, num_masks).diff(dim=-1)


def bucket_probability(cells: Cells, index: Int64[Tensor, "*shape"], num_masks: int) -> Float64[Tensor, "*shape"]:
    """Q_l(k | x_0) for one k at every position, 0 .. M-1."""
    check_masks(num_masks)
    return _share_below(cells, torch.stack([index, index + 1], dim=-1).double(), num_masks).diff(dim=-1)[..., 0]


def bucket_information(cells: Cells, num_masks: int) -> Float64[Tensor, "*shape"]:
    """log M - H(Q_l(. | x_0)), in nats: what a token says of its mask. It tends to -log q as M grows."""
    law = bucket_law(cells, num_masks)
    return math.log(num_masks) + torch.special.xlogy(law, law).sum(-1)


def token_at(
    probs: Float[Tensor, "*shape V"], u: Float64[Tensor, "*shape"], order: Order = "id"
) -> Int64[Tensor, "*shape"]:
    """The token in whose cell the number lies: how a teacher writes by given numbers."""
    ordered = in_order(probs, order)
    return ordered.tokens.gather(-1, invert_cdf(ordered.probs, u)[..., None])[..., 0]


def token_law(
    probs: Float[Tensor, "*shape V"], index: Int64[Tensor, "*shape"], num_masks: int, order: Order = "id"
) -> Float64[Tensor, "*shape V"]:
    """p(x_0^l = a | x^{<l}, x_1^l = k) = M |C_l(a) ∩ [k/M, (k+1)/M)|.

    Drawn by it, position after position, L steps from left to right sample q exactly, for every M.
    """
    check_masks(num_masks)
    ordered = in_order(probs, order)
    upper = ordered.probs.cumsum(-1)
    upper = upper / upper[..., -1:]
    # M times the part of bucket k that lies below the upper end of a cell; the cell has the difference
    inside = (upper * num_masks - index[..., None]).clamp(0.0, 1.0)
    law = torch.diff(inside, dim=-1, prepend=torch.zeros_like(inside[..., :1]))
    return torch.zeros_like(law).scatter(-1, ordered.tokens, law)


def left_to_chance(probs: Float[Tensor, "*shape V"], num_masks: int, order: Order = "id") -> Float64[Tensor, "*shape"]:
    """H(x_0^l | x^{<l}, x_1^l) in nats: what the mask leaves open to one who knows all tokens before.

    Cells and buckets together cut [0, 1) into pieces, each one token in one bucket; the entropy of the pieces less
    that of the buckets, log M, is left. It falls like 1/M.
    """
    check_masks(num_masks)
    upper = in_order(probs, order).probs.cumsum(-1)
    upper = upper / upper[..., -1:]
    # the ends of cells and buckets in one order, and the pieces between them
    cuts = torch.arange(1, num_masks + 1, dtype=torch.float64, device=upper.device) / num_masks
    edges = torch.cat([upper, cuts.expand(*upper.shape[:-1], num_masks)], dim=-1).sort(dim=-1).values
    pieces = edges.diff(dim=-1, prepend=torch.zeros_like(edges[..., :1])).clamp_min(0.0)
    # H(pieces) - log M
    return (-torch.special.xlogy(pieces, pieces).sum(-1) - math.log(num_masks)).clamp_min(0.0)


def advise_quantile_masks(probs: Float[Tensor, "*shape V"], nats: float | int = 0.02, order: Order = "id") -> int:
    """The smallest power of two for which, on average over the positions, at most `nats` per token are left open."""
    require(nats > 0, f"nats must be above 0, since no number of masks leaves nothing to chance; got {nats!r}")
    num_masks = 2
    while float(left_to_chance(probs, num_masks, order).mean()) > nats:
        num_masks *= 2
        require(num_masks <= _MOST_MASKS, f"nats must be larger: {_MOST_MASKS} masks leave more than {nats} open")
    return num_masks


def in_order(probs: Float[Tensor, "*rows V"], order: Order = "id") -> Ordered:
    """Probabilities as their cells lie, in float64."""
    probs = probs.double()
    if isinstance(order, Tensor):
        tokens = torch.argsort(_ranks(order, probs))
        return Ordered(probs[..., tokens], tokens.expand(probs.shape))
    if order == "probable":
        return Ordered(*probs.sort(dim=-1, descending=True, stable=True))
    return Ordered(probs, torch.arange(probs.shape[-1], device=probs.device).expand(probs.shape))


def similarity_order(embeddings: Float[Tensor, "V d"]) -> Int64[Tensor, " V"]:
    """A place for every token such that neighbours have similar embeddings.

    The tokens are halved along their first principal axis, and each half again, down to single ones; a half is turned
    round if that brings the tokens at the seam nearer to each other.
    """
    points = embeddings.detach().to("cpu", torch.float64)
    points = torch.nn.functional.normalize(points - points.mean(0), dim=-1)
    line = _chain(points, torch.arange(len(points)))
    return torch.empty_like(line).scatter(0, line, torch.arange(len(line)))


def neighbour_laws(ids: Int64[Tensor, "B L"], vocab_size: int, contexts: int = 512) -> Float64[Tensor, "V d"]:
    """The laws of the tokens before and behind every token, sqrt p(b before | a) and sqrt p(b behind | a).

    Square roots, because their distance is Hellinger's, in which rare neighbours count too. The most frequent
    neighbours, `contexts` of them, have a column each, and all others share one: d stays small for large vocabularies.
    """
    check_ids("ids", ids, vocab_size)
    V = vocab_size
    kept = min(check_integer("contexts", contexts, 1), V)
    column = torch.full((V,), kept, dtype=torch.long)
    frequency = torch.bincount(ids.flatten(), minlength=V)
    column[frequency.argsort(descending=True, stable=True)[:kept]] = torch.arange(kept)
    # how often a neighbour stands before a token, and behind it; as shares, and their square roots
    left = ids[:, :-1].flatten()
    right = ids[:, 1:].flatten()
    laws = []
    for token, neighbour in ((left, right), (right, left)):
        counts = torch.zeros(V * (kept + 1), dtype=torch.float64)
        counts.index_add_(0, token * (kept + 1) + column[neighbour], torch.ones(len(token), dtype=torch.float64))
        counts = counts.view(V, kept + 1)
        laws.append(counts / counts.sum(1, keepdim=True).clamp_min(1.0))
    return torch.cat(laws, dim=1).sqrt()


def _chain(points: Tensor, members: Tensor) -> Tensor:
    """The members in the order of a line along which neighbours are near each other."""
    if len(members) <= 2:
        return members
    own = points[members] - points[members].mean(0)
    # A few steps of the power method: the axis is wanted, not its digits. The start is a function of the points.
    axis = own[own.square().sum(-1).argmax()]
    for _ in range(12):
        axis = torch.nn.functional.normalize(own.T @ (own @ axis), dim=0)
    by_axis = members[torch.argsort(own @ axis, stable=True)]
    left, right = (_chain(points, half) for half in by_axis.tensor_split(2))
    turned = [(a, b) for a in (left, left.flip(0)) for b in (right, right.flip(0))]
    return torch.cat(min(turned, key=lambda pair: float((points[pair[0][-1]] - points[pair[1][0]]).square().sum())))


def check_masks(num_masks: int) -> int:
    """At least two masks: one bucket would tell nothing of the number."""
    number = check_integer("num_masks", num_masks, 1)
    require(number >= 2, f"num_masks must be at least 2: with one bucket every number looks alike; got {number}")
    return number


def check_possible(cells: Cells, teacher: str, numbers: Sequence[int] | None = None) -> None:
    """Every token must have a cell; `numbers` are those of the sequences. It waits for the device."""
    missing = ~(cells.width > 0)
    if bool(missing.any()):
        row, place = (int(i) for i in missing.nonzero()[0][-2:])
        sequence = row if numbers is None else numbers[row]
        raise ValueError(
            f"{teacher} gives the token at position {place} of sequence {sequence} probability 0, so that no number "
            f"draws it ({int(missing.sum())} such tokens in {missing.numel()}): take one that was trained on such text"
        )


def _share_below(cells: Cells, edges: Float64[Tensor, "*e"], num_masks: int) -> Float64[Tensor, "*shape e"]:
    """The share of each cell that lies below edge/M, relative to the cell: exact for the smallest of them."""
    lower = cells.lower[..., None]
    width = cells.width[..., None]
    below = ((edges / num_masks - lower) / width).clamp(0.0, 1.0)
    # Rounding may leave the last cell a little short of 1.
    return torch.where(edges >= num_masks, 1.0, below)


def _ranks(order: Tensor, probs: Tensor) -> Tensor:
    require(
        order.shape == probs.shape[-1:],
        f"order must have a place for each of {probs.shape[-1]} tokens; got shape {list(order.shape)}",
    )
    return order.to(probs.device)
