import math

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from multimdm.process import Schedule

SCHEDULES = [Schedule(), Schedule(rho=0.5), Schedule(rho=2.3), Schedule(rho=0.7, kind="cosine")]
KINDS = pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def exact(schedule: Schedule, t: float) -> dict:
    """The same values with fifty digits."""
    with mpmath.workdps(50):
        t, rho = mpmath.mpf(t), mpmath.mpf(schedule.rho)
        alpha = 1 - t if schedule.kind == "linear" else mpmath.cos(mpmath.pi * t / 2)
        d_alpha = mpmath.mpf(-1) if schedule.kind == "linear" else -mpmath.pi / 2 * mpmath.sin(mpmath.pi * t / 2)
        beta, d_beta = alpha**rho, rho * alpha ** (rho - 1) * d_alpha
        return {
            "alpha": alpha,
            "beta": beta,
            "one_minus_alpha": 1 - alpha,
            "one_minus_beta": 1 - beta,
            "d_alpha": d_alpha,
            "d_beta": d_beta,
            "hazard_alpha": -d_alpha / alpha,
            "hazard_beta": -d_beta / beta,
            "beta_decay": -d_beta * beta,
        }


@KINDS
@DTYPES
def test_ends_are_exact(schedule, dtype):
    start, end = schedule(torch.tensor(0.0, dtype=dtype)), schedule(torch.tensor(1.0, dtype=dtype))
    assert start.alpha == start.beta == end.one_minus_alpha == end.one_minus_beta == 1
    assert end.alpha == end.beta == start.one_minus_alpha == start.one_minus_beta == 0


@KINDS
@DTYPES
@given(t=st.floats(2.0**-100, 1.0, exclude_max=True, width=32))
def test_every_value_keeps_its_digits(schedule, dtype, t):
    values = schedule(torch.tensor(t, dtype=dtype))
    for name, expected in exact(schedule, float(torch.tensor(t, dtype=dtype))).items():
        assert float(getattr(values, name)) == pytest.approx(
            float(expected), rel=2e-5 if dtype is torch.float32 else 1e-13
        )


@KINDS
@given(times=st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=2, unique=True))
def test_between_keeps_its_digits(schedule, times):
    s, t = sorted(times)
    b = schedule.between(torch.tensor(s, dtype=torch.float64), torch.tensor(t, dtype=torch.float64))
    with mpmath.workdps(50):
        at_s, at_t = exact(schedule, s), exact(schedule, t) if t < 1 else None
        alpha_t = at_t["alpha"] if at_t else mpmath.mpf(0)
        ratio = alpha_t / at_s["alpha"]
        expected = {
            "alpha": ratio,
            "beta": ratio**schedule.rho,
            "one_minus_alpha": 1 - ratio,
            "one_minus_beta": 1 - ratio**schedule.rho,
            "reveal": (at_s["alpha"] - alpha_t) / (1 - alpha_t),
            "still_hidden": at_s["one_minus_alpha"] / (1 - alpha_t),
        }
    for name, value in expected.items():
        assert float(getattr(b, name)) == pytest.approx(float(value), rel=1e-12, abs=1e-300)


@KINDS
def test_derivatives_are_those_of_autograd(schedule):
    t = torch.linspace(0.05, 0.95, 19, dtype=torch.float64, requires_grad=True)
    values = schedule(t)
    for name, derivative in (("alpha", values.d_alpha), ("beta", values.d_beta)):
        (gradient,) = torch.autograd.grad(getattr(values, name).sum(), t, retain_graph=True)
        torch.testing.assert_close(derivative, gradient)


def test_infinite_only_where_documented():
    end = Schedule(rho=0.5)(1.0)
    assert end.d_beta == -math.inf
    assert end.hazard_alpha == end.hazard_beta == math.inf
    assert end.beta_decay == 0.5  # what is left of the identification weight, for rho = 1/2
    assert Schedule(rho=0.4)(1.0).beta_decay == math.inf


def test_numbers_take_the_default_dtype_and_tensors_their_own():
    assert Schedule()(0.5).alpha.dtype == torch.get_default_dtype()
    assert Schedule()(torch.tensor(0.5, dtype=torch.float64)).beta.dtype == torch.float64
