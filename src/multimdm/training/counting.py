"""Counts what a computation would take, without doing it: tensors have shapes and no contents."""

import math
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

aten = torch.ops.aten


class Memory(TorchDispatchMode):
    """The bytes of tensors that are made inside, now and at most; what was there before is not counted."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._alive: set[int] = set()

    def leave_out(self, tensors: Sequence[Tensor]) -> None:
        """These are someone else's to count."""
        for tensor in tensors:
            self._alive.add(tensor.untyped_storage()._cdata)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._count(leaf.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._alive:
            return
        self._alive.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._alive.discard(key)
        self.now -= size


class Assumed(TorchDispatchMode):
    """Answers what only contents could tell: so large a share of positions is active, and every number is 1.

    Among rows that were chosen so, what holds of one holds of all: a running count of them is 1, 2, 3, ... Numbers that
    are made of constants have contents, though tensors around them have none.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self._share = share

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.nonzero.default:
            return torch.stack(self._places(args[0]), 1)
        if func is aten._local_scalar_dense.default and getattr(args[0], "constant", None) is None:
            number = getattr(args[0], _COUNT, 1)
            return True if args[0].dtype == torch.bool else float(number) if args[0].is_floating_point() else number
        if func in (aten.index.Tensor, aten.index_put.default, aten.index_put_.default):
            args = (args[0], self._without_masks(args[1]), *args[2:])
        result = func(*args, **(kwargs or {}))
        if func is aten.cumsum.default and result.ndim == 1:
            setattr(result, _COUNT, 1)
        elif func is aten.constant_pad_nd.default and hasattr(args[0], _COUNT):
            setattr(result, _COUNT, getattr(args[0], _COUNT) - args[1][0])
        elif func is aten.select.int and hasattr(args[0], _COUNT):
            setattr(result, _COUNT, getattr(args[0], _COUNT) + args[2])
        return result

    def _without_masks(self, indices: Sequence[Tensor | None]) -> list[Tensor | None]:
        """An index x[mask] written as x[i, j]."""
        found: list[Tensor | None] = []
        for index in indices:
            masks = index is not None and index.dtype == torch.bool
            found += self._places(index) if masks and index is not None else [index]
        return found

    def _places(self, mask: Tensor) -> list[Tensor]:
        rows = math.ceil((self._share if mask.ndim > 1 else 1.0) * mask.numel())
        return [torch.zeros(rows, dtype=torch.long, device=mask.device) for _ in range(mask.ndim)]


_COUNT = "_first_count"
"""The name under which a running count keeps its first number."""


def arithmetic() -> FlopCounterMode:
    """A counter of products and sums inside, which knows attention on a CPU too."""
    return FlopCounterMode(display=False, custom_mapping=_ATTENTION)


def _forward(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return sdpa_flop_count(query, key, value)


def _backward(slope: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return sdpa_backward_flop_count(slope, query, key, value)


_ATTENTION = {
    aten._scaled_dot_product_flash_attention_for_cpu: _forward,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _backward,
}


@contextmanager
def without_contents(share: float = 1.0) -> Iterator[None]:
    """Everything that is made inside has a shape only."""
    with FakeTensorMode(allow_non_fake_inputs=True), Assumed(share):
        yield
