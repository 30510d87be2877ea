"""Assignments: which mask each clean token is designated to (the matrix T of the paper, as indices).

Every function returns a LongTensor [V] of mask indices 0..M-1 in which each mask occurs. `Groups` sums over the tokens
of each mask (T x of the paper) and spreads back. The paper's assignment x mod M repeats along the vocabulary, so that
its groups are the columns of a matrix with M columns: sums and products then run over contiguous memory. Any other
assignment goes through indices.

Shapes: V tokens, M masks; an assignment is [V], a table over the tokens [*rows, V], its group sums [*rows, M].
"""

import heapq
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from multimdm._checks import check_integer, require


class Groups:
    """The tokens of each of the M masks."""

    def __init__(self, assignment: Int64[Tensor, " V"], num_masks: int) -> None:
        self.assignment = assignment
        self.num_masks = num_masks
        V = len(assignment)
        periodic = torch.equal(assignment, torch.arange(V, device=assignment.device) % num_masks)
        self.whole = V // num_masks * num_masks if periodic else None
        """How many tokens fill whole rows of the matrix, if the assignment is x mod M."""

    def to(self, device: torch.device) -> "Groups":
        """The same groups on another device."""
        return self if device == self.assignment.device else Groups(self.assignment.to(device), self.num_masks)

    def sum(self, table: Float[Tensor, "*rows V"]) -> Float[Tensor, "*rows M"]:
        """The sum over the tokens of each mask."""
        if self.whole is None:
            sums = table.new_zeros((*table.shape[:-1], self.num_masks))
            return sums.index_add(-1, self.assignment, table)
        sums = table[..., : self.whole].unflatten(-1, (-1, self.num_masks)).sum(-2)
        rest = table[..., self.whole :]
        return sums + torch.nn.functional.pad(rest, (0, self.num_masks - rest.shape[-1]))

    def scale_(self, table: Float[Tensor, "N V"], factors: Float[Tensor, "N M"]) -> None:
        """Multiply every token's entry by the factor of its mask, in place."""
        if self.whole is None:
            table *= factors.gather(1, self.assignment.expand(len(table), -1))
        else:
            table[:, : self.whole].unflatten(-1, (-1, self.num_masks)).mul_(factors[:, None])
            table[:, self.whole :].mul_(factors[:, : table.shape[-1] - self.whole])


def check_sizes(vocab_size: int, num_masks: int, spare: bool = False) -> None:
    """At least two tokens, and from one mask to one per token; or more, if masks may be spare."""
    check_integer("vocab_size", vocab_size, 2)
    check_integer("num_masks", num_masks, 1)
    require(
        spare or num_masks <= vocab_size,
        f"num_masks must be at most vocab_size, {vocab_size} (a mask no token uses carries nothing); got {num_masks}",
    )


def check_assignment(assignment: Tensor, vocab_size: int, num_masks: int, spare: bool = False) -> None:
    """An integer tensor [V] that uses every mask 0..M-1 and no other; if masks may be spare, as many as it can."""
    require(
        isinstance(assignment, Tensor) and not assignment.is_floating_point() and assignment.dtype != torch.bool,
        "assignment must be an integer tensor of mask indices; "
        f"got {assignment.dtype if isinstance(assignment, Tensor) else type(assignment).__name__}",
    )
    require(
        assignment.shape == (vocab_size,),
        f"assignment must have shape [{vocab_size}] (one mask index per token); got {list(assignment.shape)}",
    )
    low = int(assignment.min())
    high = int(assignment.max())
    require(
        low >= 0 and high < num_masks,
        f"assignment must hold mask indices from 0 to {num_masks - 1}; it holds {low} to {high}",
    )
    used = torch.zeros(num_masks, dtype=torch.bool, device=assignment.device)
    used[assignment.long()] = True
    if int(used.sum()) < (min(vocab_size, num_masks) if spare else num_masks):
        unused = int((~used).nonzero()[0])
        raise ValueError(f"assignment must use every mask; mask {unused} of {num_masks} has no token")


def own_masks(vocab_size: int) -> Int64[Tensor, " V"]:
    """m_x = x, where there are as many masks as tokens, or more: every token has one of its own."""
    return torch.arange(vocab_size)


def modulo(vocab_size: int, num_masks: int) -> Int64[Tensor, " V"]:
    """m_x = x mod M: the paper's choice, by the tokenizer's numbering."""
    check_sizes(vocab_size, num_masks)
    return torch.arange(vocab_size) % num_masks


def random_balanced(vocab_size: int, num_masks: int, seed: int = 0) -> Int64[Tensor, " V"]:
    """A random assignment whose groups differ in size by one at most."""
    check_sizes(vocab_size, num_masks)
    order = torch.randperm(vocab_size, generator=torch.Generator().manual_seed(seed))
    return (order % num_masks).contiguous()


def frequency_balanced(counts: Sequence[float | int] | Tensor, num_masks: int) -> Int64[Tensor, " V"]:
    """Masks of nearly equal probability mass, given how often each token occurs.

    The most frequent token not yet placed goes to the lightest mask (Graham's rule), which is within 4/3 of the
    best possible heaviest mask. Ties go to the mask with fewer tokens, so tokens that never occur spread evenly.
    """
    counts = torch.as_tensor(counts, dtype=torch.float64)
    require(counts.ndim == 1, f"counts must be a list of one count per token; got shape {list(counts.shape)}")
    check_sizes(len(counts), num_masks)
    require(
        bool(torch.isfinite(counts).all()) and bool((counts >= 0).all()),
        f"counts must be finite and not negative; got values from {float(counts.min())} to {float(counts.max())}",
    )
    assignment = [0] * len(counts)
    masks = [(0.0, 0, mask) for mask in range(num_masks)]  # (mass, tokens, mask): a heap, lightest first
    values = counts.tolist()
    for token in torch.argsort(counts, descending=True, stable=True).tolist():
        mass, tokens, mask = heapq.heappop(masks)
        assignment[token] = mask
        heapq.heappush(masks, (mass + values[token], tokens + 1, mask))
    return torch.tensor(assignment)


def clustered(embeddings: Float[Tensor, "V d"], num_masks: int, seed: int = 0, rounds: int = 20) -> Int64[Tensor, " V"]:
    """Clusters of tokens with similar embeddings, their sizes equal within one (a balanced k-means).

    The "semantic" assignment: a draft of masks then already tells what kind of token stands where.
    """
    require(
        embeddings.ndim == 2 and bool(torch.isfinite(embeddings).all()),
        f"embeddings must be a finite matrix [V, d]; got shape {list(embeddings.shape)}",
    )
    V = embeddings.shape[0]
    check_sizes(V, num_masks)
    points = embeddings.detach().to("cpu", torch.float32)
    points = points - points.mean(0)
    centres = _spread_centres(points, num_masks, torch.Generator().manual_seed(seed))
    assignment = _fill(torch.cdist(points, centres))
    for _ in range(rounds):
        # each centre is the mean of its points, then each point goes to a centre again
        sums = torch.zeros_like(centres).index_add_(0, assignment, points)
        centres = sums / torch.bincount(assignment, minlength=num_masks)[:, None]
        before = assignment
        assignment = _fill(torch.cdist(points, centres))
        if torch.equal(before, assignment):
            break
    return assignment


def advise_masks(num_sequences: int, length: int) -> int:
    """The smallest M with M^L >= N: the terminal noise then has room for every sequence of the data (Sec. 3.1)."""
    check_integer("num_sequences", num_sequences, 1)
    check_integer("length", length, 1)
    # Bisection on integers: floating roots are off for large N.
    low = 1
    high = 1
    while high**length < num_sequences:
        low = high + 1
        high = 2 * high
    while low < high:
        middle = (low + high) // 2
        if middle**length >= num_sequences:
            high = middle
        else:
            low = middle + 1
    return low


def _spread_centres(points: Tensor, num: int, generator: torch.Generator) -> Tensor:
    """k-means++: each centre is a point drawn in proportion to its squared distance from those chosen."""
    chosen = [int(torch.randint(len(points), (1,), generator=generator))]
    distance = (points - points[chosen[0]]).square().sum(-1)
    for _ in range(1, num):
        weights = distance.double()
        if float(weights.sum()) == 0.0:  # fewer distinct points than centres
            weights = torch.ones_like(weights)
        weights[chosen] = 0.0
        chosen.append(int(torch.multinomial(weights, 1, generator=generator)))
        distance = torch.minimum(distance, (points - points[chosen[-1]]).square().sum(-1))
    return points[chosen]


def _fill(distance: Tensor) -> Tensor:
    """Each point to its nearest group with room, the groups' sizes equal within one.

    In rounds: every point without a group asks its nearest open one; a group takes the nearest of those that ask.
    """
    V, M = distance.shape
    room = torch.full((M,), V // M, device=distance.device)
    assignment = torch.full((V,), -1, device=distance.device)
    waiting = torch.arange(V, device=distance.device)
    while len(waiting):
        if not bool((room > 0).any()):
            # All groups hold V // M: what is left goes one by one, at most one more to each.
            room = torch.ones_like(room)
        cost = distance[waiting].masked_fill(room <= 0, torch.inf)
        nearest, group = cost.min(-1)
        order = torch.argsort(nearest, stable=True)
        order = order[torch.argsort(group[order], stable=True)]  # by group, then by distance
        asked = torch.bincount(group, minlength=M)
        rank = torch.arange(len(order), device=order.device) - (asked.cumsum(0) - asked)[group[order]]
        taken = order[rank < room[group[order]]]
        assignment[waiting[taken]] = group[taken]
        room = room - torch.bincount(group[taken], minlength=M)
        waiting = waiting[assignment[waiting] < 0]
    return assignment
