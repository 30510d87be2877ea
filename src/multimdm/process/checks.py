"""Checks of tensors: shapes and dtypes always; their contents on request.

Looking at the contents of a tensor waits for the device, so the hot path never does it. `debug_checks()`
(or MULTIMDM_DEBUG=1 in the environment) switches it on while a program is being written.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from multimdm._checks import require

_enabled = os.environ.get("MULTIMDM_DEBUG", "") not in ("", "0")


@contextmanager
def debug_checks(enabled: bool = True) -> Iterator[None]:
    """Check the contents of tensors inside the `with` block: ids and times in range, s < t, predictions normalised."""
    global _enabled
    before = _enabled
    _enabled = enabled
    try:
        yield
    finally:
        _enabled = before


def checks_contents() -> bool:
    """Whether the contents of tensors are being checked."""
    return _enabled


def kind_of(value: object) -> object:
    """What to call a value in an error: the dtype of a tensor, or the name of its type."""
    return value.dtype if isinstance(value, Tensor) else type(value).__name__


def check_ids(name: str, x: Tensor, num_states: int) -> None:
    """Token ids: an int64 or int32 tensor; under `debug_checks`, with every id in 0..num_states-1.

    Smaller integers are refused: torch would wrap the vocabulary's size to their range in comparisons.
    """
    require(
        isinstance(x, Tensor) and x.dtype in (torch.int64, torch.int32),
        f"{name} must be an integer tensor of token ids, int64 or int32; got {kind_of(x)}",
    )
    if _enabled and x.numel():
        low = int(x.min())
        high = int(x.max())
        require(
            low >= 0 and high < num_states,
            f"{name} must hold ids from 0 to {num_states - 1}; it holds ids from {low} to {high}",
        )


def check_same_shape(name: str, x: Tensor, other_name: str, other: Tensor) -> None:
    """Two tensors that must agree position by position."""
    require(
        x.shape == other.shape,
        f"{name} and {other_name} must have the same shape; got {list(x.shape)} and {list(other.shape)}",
    )


def check_table(name: str, table: Tensor, x: Tensor, columns: int) -> None:
    """A floating table with one row of `columns` numbers per position of `x`."""
    require(
        isinstance(table, Tensor) and table.is_floating_point(),
        f"{name} must be a floating-point tensor; got {kind_of(table)}",
    )
    require(
        table.shape == (*x.shape, columns),
        f"{name} must have shape {[*x.shape, columns]} (one row per position); got {list(table.shape)}",
    )


def check_weights(name: str, weights: Tensor) -> None:
    """Under `debug_checks`: rows that are finite, not negative and not all zero."""
    if _enabled and weights.numel():
        good = bool((weights >= 0).all()) and bool(weights.isfinite().all()) and bool((weights.sum(-1) > 0).all())
        require(good, f"{name} must be finite and not negative, with a positive sum in every row")


def check_normalised(name: str, total: Tensor) -> None:
    """Sums of probabilities that are one, up to the rounding of bfloat16."""
    if total.numel():
        worst = float((total.detach().double() - 1).abs().max())
        require(worst < 0.02, f"{name} must be normalised: its rows' probabilities sum to 1 within {worst:.3g} only")
