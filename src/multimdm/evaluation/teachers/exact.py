"""Tales as its own teacher: the exact conditionals of the source."""

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from multimdm.data.tales import Tales
from multimdm.evaluation.tales_models import fingerprint_of_tales
from multimdm.process.quantile import Cells, Order, cells, neighbour_laws

_STORIES = 20_000


class TalesTeacher:
    """q(x_l | x_<l) of the pure source, by its dynamic programme: noise of its stories is uniform exactly."""

    name = "tales"

    def __init__(self, tales: Tales) -> None:
        self._tales = tales
        self.fingerprint = f"exact {fingerprint_of_tales(tales)}"
        self.vocab_size: int = tales.vocab_size

    def to(self, device: torch.device) -> None:
        """The programme runs on the CPU, wherever the network does."""

    def embeddings(self) -> Float64[Tensor, "V d"]:
        """The laws of a token's neighbours in some stories that are always the same."""
        return neighbour_laws(self._tales.sample(_STORIES, torch.Generator().manual_seed(0)), self.vocab_size)

    def cells(self, ids: Int64[Tensor, "B L"], order: Order = "id") -> Cells:
        """The cells, position by position."""
        columns = [cells(probs, ids[:, place], order) for place, probs in enumerate(self._tales.conditionals(ids))]
        return Cells(*(torch.stack(column, dim=1) for column in zip(*columns, strict=True)))

    def write(self, u: Float64[Tensor, "B L"], order: Order = "id") -> Int64[Tensor, "B L"]:
        """The stories of the source that these numbers draw."""
        return self._tales.write(u, order)
