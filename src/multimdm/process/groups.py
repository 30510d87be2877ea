"""Tokens in groups by their designated mask: sums over each group (T x of the paper), and spreading back.

The paper's assignment x mod M repeats along the vocabulary, so that its groups are the columns of a matrix with M
columns: sums and products then run over contiguous memory. Any other assignment goes through indices.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor


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
