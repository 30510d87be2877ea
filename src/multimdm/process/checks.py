"""Checks of arguments: sizes, shapes, dtypes and plain numbers always; the contents of tensors on request.

Looking at the contents of a tensor waits for the device, so the hot path never does it. `debug_checks()`
(or MULTIMDM_DEBUG=1 in the environment) switches it on while a program is being written.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_enabled = os.environ.get("MULTIMDM_DEBUG", "") not in ("", "0")

INTEGER_DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@contextmanager
def debug_checks(enabled: bool = True) -> Iterator[None]:
    """Check the contents of tensors (ids in range, times in [0, 1], s < t) inside the `with` block."""
    global _enabled
    before, _enabled = _enabled, enabled
    try:
        yield
    finally:
        _enabled = before


def checks_contents() -> bool:
    """Whether the contents of tensors are being checked."""
    return _enabled


def require(condition: bool, message: str) -> None:
    """Raise ValueError with `message` unless `condition` holds."""
    if not condition:
        raise ValueError(message)


def check_integer(name: str, value: int, minimum: int) -> int:
    """An integer argument that is at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be an integer of at least {minimum}; got {value!r}")
    require(value >= minimum, f"{name} must be at least {minimum}; got {value}")
    return value


def check_ids(name: str, x: Tensor, num_states: int) -> None:
    """Token ids: an integer tensor; under `debug_checks`, with every id in 0..num_states-1."""
    if not isinstance(x, Tensor) or x.dtype not in INTEGER_DTYPES:
        kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"{name} must be an integer tensor of token ids; got {kind}")
    if _enabled and x.numel():
        low, high = int(x.min()), int(x.max())
        require(
            low >= 0 and high < num_states,
            f"{name} must hold ids from 0 to {num_states - 1}; it holds ids from {low} to {high}",
        )


def check_same_shape(name: str, x: Tensor, other_name: str, other: Tensor) -> None:
    """Two tensors of ids that must agree position by position."""
    require(
        x.shape == other.shape,
        f"{name} and {other_name} must have the same shape; got {list(x.shape)} and {list(other.shape)}",
    )


def check_table(name: str, table: Tensor, x: Tensor, columns: int) -> None:
    """A floating table with one row of `columns` numbers per position of `x`."""
    if not isinstance(table, Tensor) or not table.is_floating_point():
        kind = table.dtype if isinstance(table, Tensor) else type(table).__name__
        raise ValueError(f"{name} must be a floating-point tensor; got {kind}")
    require(
        table.shape == (*x.shape, columns),
        f"{name} must have shape {[*x.shape, columns]} (one row per position); got {list(table.shape)}",
    )
