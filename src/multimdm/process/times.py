"""Times: one number, or a tensor with a time per batch, per sequence or per position."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from multimdm.process.checks import checks_contents, require

Time = float | int | Tensor
"""A number in [0, 1], or a floating tensor whose shape is a prefix of the shape of the ids."""


def check_time(name: str, t: Time) -> None:
    """A time in [0, 1]: numbers always, contents of tensors under `debug_checks`."""
    if isinstance(t, Tensor):
        require(t.is_floating_point(), f"{name} must be a number or a floating-point tensor; got {t.dtype}")
        if checks_contents() and t.numel():
            inside = bool(((t >= 0) & (t <= 1)).all())
            require(
                inside,
                f"{name} must lie in [0, 1]; it holds values from {float(t.min())} to {float(t.max())}",
            )
    else:
        require(
            isinstance(t, (int, float)) and not isinstance(t, bool) and 0 <= t <= 1,  # false for NaN too
            f"{name} must lie in [0, 1] (0 is data, 1 is noise); got {t!r}",
        )


def check_order(s: Time, t: Time) -> None:
    """Both times in [0, 1] and s < t: for two numbers always, for tensors under `debug_checks`."""
    check_time("s", s)
    check_time("t", t)
    numbers = not isinstance(s, Tensor) and not isinstance(t, Tensor)
    if numbers or checks_contents():
        require(
            bool(torch.as_tensor(s < t).all()),
            f"s must be earlier than t; got s = {s!r} and t = {t!r}",
        )


def time_dtype(*times: Time) -> torch.dtype:
    """The dtype in which to compute: that of the tensors among `times`, else torch's default."""
    dtypes = [t.dtype for t in times if isinstance(t, Tensor)]
    if not dtypes:
        return torch.get_default_dtype()
    result = dtypes[0]
    for dtype in dtypes[1:]:
        result = torch.promote_types(result, dtype)
    return result


def per_position(name: str, t: Time, x: Tensor, dtype: torch.dtype) -> Tensor:
    """`t` as a tensor that broadcasts against `x`: its shape is x.shape[:k] followed by ones."""
    t = torch.as_tensor(t, dtype=dtype, device=x.device)
    require(
        t.shape == x.shape[: t.ndim],
        f"{name} must be a number or have a shape that begins the shape of the ids, {list(x.shape)}; "
        f"got {list(t.shape)}",
    )
    return t.reshape((*t.shape, *[1] * (x.ndim - t.ndim)))


def stack_times(times: Sequence[float | int] | Tensor, x: Tensor, dtype: torch.dtype) -> Tensor:
    """`times` [T] or [T, *x.shape[:k]] as a tensor that broadcasts against [T, *x.shape]."""
    if not isinstance(times, Tensor):
        for index, t in enumerate(times):
            check_time(f"times[{index}]", t)
    times = torch.as_tensor(times, dtype=dtype, device=x.device)
    require(times.ndim >= 1, "times must be a list of times, or a tensor [T] or [T, B]; got one number")
    require(
        times.shape[1:] == x.shape[: times.ndim - 1],
        f"times must have shape [T] or [T, B, ...] with B, ... as in the ids, {list(x.shape)}; got {list(times.shape)}",
    )
    check_time("times", times)
    return times.reshape((*times.shape, *[1] * (x.ndim + 1 - times.ndim)))


def check_positive(name: str, value: float) -> None:
    """A finite number above zero."""
    require(
        isinstance(value, (int, float)) and math.isfinite(value) and value > 0,
        f"{name} must be a finite number above 0; got {value!r}",
    )
