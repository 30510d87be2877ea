"""Times: one number, or a tensor with a time per batch, per sequence or per position."""

from collections.abc import Sequence
from numbers import Real

import torch
from torch import Tensor

from multimdm._checks import require
from multimdm.process.checks import checks_contents

Time = float | int | Tensor
"""A number in [0, 1], or a floating tensor whose shape is a prefix of the shape of the ids."""


def check_time(name: str, t: Time) -> None:
    """A time in [0, 1]: numbers always, contents of tensors under `debug_checks`."""
    if not isinstance(t, Tensor):
        require(
            isinstance(t, Real) and not isinstance(t, bool) and 0 <= t <= 1,  # false for NaN too
            f"{name} must lie in [0, 1] (0 is data, 1 is noise); got {t!r}",
        )
        return
    require(t.is_floating_point(), f"{name} must be a number or a floating-point tensor; got {t.dtype}")
    if checks_contents() and not bool(((t >= 0) & (t <= 1)).all()):
        low = float(t.detach().min())
        high = float(t.detach().max())
        raise ValueError(f"{name} must lie in [0, 1]; it holds values from {low} to {high}")


def check_order(s: Time, t: Time) -> None:
    """Both times in [0, 1]; for two numbers also s < t."""
    check_time("s", s)
    check_time("t", t)
    if not isinstance(s, Tensor) and not isinstance(t, Tensor):
        require(s < t, f"s must be earlier than t; got s = {s!r} and t = {t!r}")


def time_dtype(*times: Time) -> torch.dtype:
    """The dtype of results: that of the tensors among `times`, else torch's default."""
    dtypes = [t.dtype for t in times if isinstance(t, Tensor)]
    if not dtypes:
        return torch.get_default_dtype()
    result = dtypes[0]
    for dtype in dtypes[1:]:
        result = torch.promote_types(result, dtype)
    return result


def exact_time(t: Time, device: torch.device | str | None = None) -> Tensor:
    """`t` in float64, in which schedules are evaluated whatever the results' dtype: bfloat16 knows no 0.999."""
    if isinstance(t, Tensor):
        return t.to(dtype=torch.float64, device=device)
    return torch.full((), t, dtype=torch.float64, device=device)  # a fill, where a copy would wait for the device


def per_position(name: str, t: Time, x: Tensor) -> Tensor:
    """`t` in float64, broadcasting against `x`: its shape is x.shape[:k] followed by ones."""
    t = exact_time(t, x.device)
    require(
        t.shape == x.shape[: t.ndim],
        f"{name} must be a number or have a shape that begins the shape of the ids, {list(x.shape)}; "
        f"got {list(t.shape)}",
    )
    return t.reshape((*t.shape, *[1] * (x.ndim - t.ndim)))


def stack_times(times: Sequence[float | int] | Tensor, x: Tensor) -> Tensor:
    """`times` [T] or [T, *x.shape[:k]] in float64, broadcasting against [T, *x.shape]."""
    if isinstance(times, Tensor):
        check_time("times", times)
        stacked = exact_time(times, x.device)
    else:
        for index, t in enumerate(times):
            check_time(f"times[{index}]", t)
        stacked = torch.stack([exact_time(t, x.device) for t in times])
    require(stacked.ndim >= 1, "times must be a list of times, or a tensor [T] or [T, B]; got one number")
    require(
        stacked.shape[1:] == x.shape[: stacked.ndim - 1],
        f"times must have shape [T] or [T, B, ...] with B, ... as in the ids, {list(x.shape)}; "
        f"got {list(stacked.shape)}",
    )
    return stacked.reshape((*stacked.shape, *[1] * (x.ndim + 1 - stacked.ndim)))
