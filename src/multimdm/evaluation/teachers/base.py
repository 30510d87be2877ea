"""What quantile noise needs of an autoregressive model."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from multimdm.process.quantile import Cells, Order, check_possible, neighbour_laws, similarity_order
from multimdm.process.settings import OrderName


@runtime_checkable
class QuantileTeacher(Protocol):
    """The conditionals q(a | x^{<l}) of a model whose tokens are those of the texts."""

    name: str
    """What it is called."""
    fingerprint: str
    """Equal for equal conditionals."""
    vocab_size: int
    """V, the size of the vocabulary."""

    def to(self, device: torch.device) -> None:
        """Compute there from now on."""
        ...

    def embeddings(self) -> Float[Tensor, "V d"] | None:
        """Vectors that are alike for tokens that occur alike, if it has any."""
        ...

    def cells(self, ids: Int64[Tensor, "B L"], order: Order = "id") -> Cells:
        """Where the numbers of the tokens lie, as a function of the tokens before each; on the CPU."""
        ...

    def write(self, u: Float64[Tensor, "B L"], order: Order = "id") -> Int64[Tensor, "B L"]:
        """The texts that the numbers draw, from left to right; on the CPU."""
        ...


def order_of(
    teacher: QuantileTeacher, name: OrderName, texts: Callable[[], Int64[Tensor, "B L"]] | None = None
) -> Order:
    """The order of the vocabulary by its name in recipes; `texts` give tokens their neighbours, if there are any."""
    if name == "neighbours":
        if texts is None:
            raise ValueError("quantile.order must be similar, id or probable: there are no texts to find neighbours in")
        return similarity_order(neighbour_laws(texts(), teacher.vocab_size))
    if name != "similar":
        return name
    embeddings = teacher.embeddings()
    if embeddings is None:
        raise ValueError(f"quantile.order must not be similar: teacher '{teacher.name}' has no embeddings")
    return similarity_order(embeddings)


def cells_of_text(
    teacher: QuantileTeacher,
    ids: Int64[Tensor, "B L"],
    drawn: Bool[Tensor, "B L"] | None,
    order: Order = "id",
    numbers: Sequence[int] | None = None,
) -> Cells:
    """The cells of the texts; that of what is not drawn, such as padding, is everything.

    A token that cannot be drawn is an error, which says of which text by its number.
    """
    found = teacher.cells(ids, order)
    if drawn is not None:
        found = Cells(found.lower.where(drawn, 0.0), found.width.where(drawn, 1.0))
    check_possible(found, f"teacher '{teacher.name}'", numbers)
    return found


def from_left_to_right(
    u: Float64[Tensor, "B L"], choose: Callable[[Int64[Tensor, "B l"], Float64[Tensor, " B"]], Int64[Tensor, " B"]]
) -> Int64[Tensor, "B L"]:
    """Write position by position: `choose` gives the next tokens after a beginning, by one number each."""
    x = torch.zeros(u.shape, dtype=torch.long, device=u.device)
    for place in range(u.shape[1]):
        x[:, place] = choose(x[:, :place], u[:, place])
    return x
