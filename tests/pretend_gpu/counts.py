"""What a GPU would have done: kernels launched, bytes moved, and waits of the host for the device."""

import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

aten = torch.ops.aten

_PICKS = {aten.gather, aten.index, aten.index_select, aten.embedding, aten.take, aten._unsafe_index}
"""Read of their table only what they give back."""
_PLACES = {
    aten.scatter,
    aten.scatter_,
    aten.scatter_add_,
    aten.index_put_,
    aten._index_put_impl_,
    aten.index_add_,
    aten.index_copy_,
    aten.index_fill_,
    aten.embedding_dense_backward,
}
"""Write only where they are told to. The copy that some of them make first is counted by their result."""
_FILLS = {aten.fill_, aten.zero_, aten.copy_}
"""Do not read what they write over."""
_LIKE = {aten.zeros_like, aten.ones_like, aten.full_like, aten.new_zeros, aten.new_ones, aten.new_full, aten.arange}
"""Take a shape, and read nothing."""
_NOTHING = {aten.empty, aten.empty_like, aten.new_empty, aten.empty_strided, aten.new_empty_strided, aten.detach}
"""Launch nothing."""


@dataclass
class Counts:
    """Counted since the device was switched on, or since `reset`."""

    launches: Counter[str] = field(default_factory=Counter)
    """Kernels by where they were asked for."""
    waits: Counter[str] = field(default_factory=Counter)
    """Times that the host waited for a result: copies to the host, shapes that depend on contents."""
    uploads: Counter[str] = field(default_factory=Counter)
    """Copies from the host."""
    bytes: int = 0
    """Read and written by kernels, if nothing stays in a cache between two of them."""
    doubles: int = 0
    """Kernels that work on float64."""

    def reset(self) -> None:
        """Forget all."""
        for counter in (self.launches, self.waits, self.uploads):
            counter.clear()
        self.bytes = self.doubles = 0

    def launched(self, func: torch._ops.OpOverload, inputs: Iterable[Tensor], outputs: Iterable[Tensor]) -> None:
        """A kernel ran on these."""
        packet, inputs, outputs = func.overloadpacket, list(inputs), list(outputs)
        if func.is_view or packet in _NOTHING:
            return
        self.launches[f"{site()} {packet.__name__}"] += 1
        self.bytes += _moved(packet, inputs, outputs)
        self.doubles += any(x.dtype == torch.float64 for x in outputs)

    def fused(self, name: str, launches: int, moved: int) -> None:
        """Compiled kernels ran; what they move was computed elsewhere."""
        self.launches[f"{site()} {name}"] += launches
        self.bytes += moved


def site() -> str:
    """The file and line of the package from which the device was asked."""
    frame = sys._getframe(1)
    while frame is not None:
        if "/multimdm/" in frame.f_code.co_filename:
            return f"{frame.f_code.co_filename.split('/multimdm/')[-1]}:{frame.f_lineno}"
        frame = frame.f_back
    return "elsewhere"


def size_of(x: Tensor) -> int:
    """Bytes that a tensor really has: what is expanded is there once."""
    entries = 1
    for size, stride in zip(x.shape, x.stride(), strict=True):
        entries *= size if stride != 0 else min(size, 1)
    return entries * x.element_size()


def _moved(packet: object, inputs: list[Tensor], outputs: list[Tensor]) -> int:
    written = sum(map(size_of, outputs))
    if packet in _PICKS:  # indices, as much of the table as comes out, and that again
        return sum(map(size_of, inputs[1:])) + 2 * written
    if packet in _PLACES:
        placed = sum(map(size_of, inputs[1:]))
        in_place = bool(outputs) and bool(inputs) and outputs[0].data_ptr() == inputs[0].data_ptr()
        return placed if in_place else placed + 2 * written
    if packet in _LIKE:
        return written
    if packet in _FILLS:
        return sum(map(size_of, inputs[1:])) + written
    return sum(map(size_of, inputs)) + written
