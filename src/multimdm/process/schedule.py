"""Times, and schedules of them: alpha_t says how visible a clean token is, beta_t how sure its mask is of it.

A time is one number, or a tensor with a time per batch, per sequence or per position. alpha falls from 1 at t = 0
(data) to 0 at t = 1 (noise), exactly; beta_t = alpha_t ** rho. Complements such as 1 - alpha are computed directly: a
subtraction would lose every digit near t = 0, where the loss weighs most.

Shapes: every value has the shape of its time, [*times]; ids x are [B, ...], times a prefix of that.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from numbers import Real
from typing import Literal, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from multimdm._checks import check_positive, require
from multimdm.process.checks import checks_contents, kind_of

Time = float | int | Tensor
"""A number in [0, 1], or a floating tensor whose shape is a prefix of the shape of the ids."""

Times = Float[Tensor, "*times"]


@dataclass(frozen=True)
class Retention:
    """A probability of staying, with its complement."""

    kept: Times
    lost: Times


Either = TypeVar("Either")


class _Values:
    """What the two kinds of values share."""

    alpha: Times
    beta: Times
    one_minus_alpha: Times
    one_minus_beta: Times

    def to(self: Either, dtype: torch.dtype) -> Either:
        """The same values in another dtype, float32 at least."""
        dtype = torch.promote_types(dtype, torch.float32)
        return type(self)(**{f.name: getattr(self, f.name).to(dtype) for f in fields(self)})  # pyright: ignore[reportArgumentType]

    @property
    def tokens(self) -> Retention:
        """alpha with its complement."""
        return Retention(self.alpha, self.one_minus_alpha)

    @property
    def masks(self) -> Retention:
        """beta with its complement."""
        return Retention(self.beta, self.one_minus_beta)


@dataclass(frozen=True)
class ScheduleValues(_Values):
    """The schedule at one time (or at a tensor of times)."""

    alpha: Times
    beta: Times
    one_minus_alpha: Times
    one_minus_beta: Times
    d_alpha: Times
    """The derivative of alpha in t."""
    d_beta: Times
    """The derivative of beta in t; minus infinity at t = 1 for rho < 1."""
    hazard_alpha: Times
    """-d_alpha / alpha, the rate lambda_t of leaving the clean token; infinite at t = 1."""
    hazard_beta: Times
    """-d_beta / beta, the rate of refreshing a mask; infinite at t = 1."""
    beta_decay: Times
    """-d_beta * beta, finite at t = 1 for rho >= 1/2: what is left of the identification weight there."""


@dataclass(frozen=True)
class BetweenValues(_Values):
    """The schedule between two times s < t: alpha_{t|s} = alpha_t / alpha_s, and so on."""

    alpha: Times
    beta: Times
    one_minus_alpha: Times
    one_minus_beta: Times
    reveal: Times
    """(alpha_s - alpha_t) / (1 - alpha_t): a token hidden at t is visible at s with this probability."""
    still_hidden: Times
    """(1 - alpha_s) / (1 - alpha_t) = 1 - reveal."""


@dataclass(frozen=True)
class Schedule:
    """alpha_t = 1 - t (or cos(pi t / 2)) and beta_t = alpha_t ** rho.

    Called with a time it gives `ScheduleValues`; `between(s, t)` gives the ratios that the two-time kernels need.
    """

    rho: float = 1.0
    """beta_t = alpha_t ** rho. The paper trains with 1 and draws Fig. conditional_entropy with 1/2."""
    kind: Literal["linear", "cosine"] = "linear"
    """alpha_t = 1 - t, or alpha_t = cos(pi t / 2)."""

    def __post_init__(self) -> None:
        check_positive("rho", self.rho)
        require(self.kind in ("linear", "cosine"), f"kind must be 'linear' or 'cosine'; got {self.kind!r}")

    def __call__(self, t: Time) -> ScheduleValues:
        """The values at t; in the dtype of t, or torch's default dtype if t is a number."""
        check_time("t", t)
        t = t if isinstance(t, Tensor) else exact_time(t).to(time_dtype())
        alpha, one_minus_alpha, d_alpha = self._alpha(t)
        hazard_alpha = -d_alpha / alpha
        if self.rho == 1.0:  # exact, and the usual case
            beta = alpha
            one_minus_beta = one_minus_alpha
            d_beta = d_alpha
            hazard_beta = hazard_alpha
            beta_decay = -d_alpha * alpha
        else:  # beta = alpha^rho, and 1 - beta = -expm1(rho log alpha), which keeps its digits near t = 0
            beta = alpha**self.rho
            one_minus_beta = -torch.expm1(self.rho * _log(alpha, one_minus_alpha))
            d_beta = self.rho * alpha ** (self.rho - 1) * d_alpha
            hazard_beta = self.rho * hazard_alpha
            beta_decay = -self.rho * alpha ** (2 * self.rho - 1) * d_alpha
        return ScheduleValues(
            alpha,
            beta,
            one_minus_alpha,
            one_minus_beta,
            d_alpha,
            d_beta,
            hazard_alpha,
            hazard_beta,
            beta_decay,
        )

    def between(self, s: Time, t: Time) -> BetweenValues:
        """alpha_{t|s}, beta_{t|s} and their complements for s < t, in float64."""
        check_order(s, t)
        s = exact_time(s)
        t = exact_time(t)
        require(
            not checks_contents() or bool((s < t).all()),
            "s must be earlier than t at every position; somewhere it is not",
        )
        alpha_s, one_minus_alpha_s, _ = self._alpha(s)
        alpha_t, one_minus_alpha_t, _ = self._alpha(t)
        # alpha_s - alpha_t, without subtracting one alpha from the other
        if self.kind == "linear":
            fall = t - s
        else:
            fall = 2 * torch.sin(math.pi / 4 * (s + t)) * torch.sin(math.pi / 4 * (t - s))
        one_minus_alpha = fall / alpha_s
        alpha = alpha_t / alpha_s
        if self.rho == 1.0:
            beta = alpha
            one_minus_beta = one_minus_alpha
        else:
            beta = alpha**self.rho
            one_minus_beta = -torch.expm1(self.rho * _log(alpha, one_minus_alpha))
        return BetweenValues(
            alpha,
            beta,
            one_minus_alpha,
            one_minus_beta,
            reveal=fall / one_minus_alpha_t,
            still_hidden=one_minus_alpha_s / one_minus_alpha_t,
        )

    def later(self, t: Times, lost: float) -> Times:
        """The time at which a token that is visible at t is hidden with probability `lost`: 1 - alpha_{later|t}."""
        alpha = (1 - lost) * self._alpha(t)[0]
        return 1 - alpha if self.kind == "linear" else 1 - torch.asin(alpha) * (2 / math.pi)

    def _alpha(self, t: Times) -> tuple[Times, Times, Times]:
        """alpha, 1 - alpha and the derivative of alpha."""
        if self.kind == "linear":
            return 1 - t, t, -torch.ones_like(t)
        alpha = torch.sin(math.pi / 2 * (1 - t))  # = cos(pi t / 2), but exactly 0 at t = 1
        one_minus_alpha = torch.where(t < 0.5, 2 * torch.sin(math.pi / 4 * t) ** 2, 1 - alpha)
        return alpha, one_minus_alpha, -math.pi / 2 * torch.sin(math.pi / 2 * t)


def _log(a: Times, one_minus_a: Times) -> Times:
    """log a, accurate at both ends."""
    return torch.where(one_minus_a < 0.5, torch.log1p(-one_minus_a), torch.log(a))


def check_schedule(schedule: Schedule | None) -> Schedule:
    """A schedule, or the default one."""
    require(
        schedule is None or isinstance(schedule, Schedule),
        f"schedule must be a Schedule; got {kind_of(schedule)}",
    )
    return schedule if schedule is not None else Schedule()


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
