"""The transformation T between the Gaussian signal and alpha, and its inverse."""

import mpmath
import pytest
import torch

from multimdm.process.shared_noise import one_minus_alpha_of_snr, snr_of_alpha
from support.plain_maps import alpha_of_signal, signal_of_alpha

SIZES = [2, 5, 100, 50_258]


def reference(signal: float, V: int) -> float:
    """T as the appendix prints it, by adaptive quadrature with thirty digits."""
    with mpmath.workdps(30):
        ratio = mpmath.mpf(signal) / mpmath.sqrt(1 - mpmath.mpf(signal) ** 2)
        below = lambda z: mpmath.erfc(-z / mpmath.sqrt(2)) / 2  # noqa: E731
        points = [-12, -4, -1, 0, 1, 2, 3, 4, 5, 6, 8, ratio + 12]
        points = sorted({p for p in points if p <= ratio + 12} | {ratio - 3, ratio, ratio + 3})
        win = mpmath.quad(lambda z: mpmath.npdf(z, ratio) * below(z) ** (V - 1), points)
        return float(mpmath.mpf(V) / (V - 1) * (win - mpmath.mpf(1) / V))


@pytest.mark.parametrize("V", SIZES)
@pytest.mark.parametrize("signal", [1e-3, 0.3, 0.8, 0.95, 0.99])
def test_transformation(V, signal):
    value = float(alpha_of_signal(torch.tensor(signal, dtype=torch.float64), V))
    assert value == pytest.approx(reference(signal, V), abs=1e-12)


@pytest.mark.parametrize("V", SIZES)
def test_inverse(V):
    alpha = torch.cat([torch.linspace(0, 1, 101, dtype=torch.float64), torch.logspace(-12, -2, 11).double()])
    torch.testing.assert_close(
        alpha_of_signal(signal_of_alpha(alpha, V)[alpha < 1], V), alpha[alpha < 1], atol=1e-12, rtol=0
    )
    assert float(signal_of_alpha(torch.tensor(0.0, dtype=torch.float64), V)) == 0
    assert float(signal_of_alpha(torch.tensor(1.0, dtype=torch.float64), V)) == 1


@pytest.mark.parametrize("V", SIZES)
def test_inverse_keeps_its_digits_where_alpha_is_nearly_one(V):
    lost = torch.logspace(-15, -1, 29, dtype=torch.float64)
    torch.testing.assert_close(one_minus_alpha_of_snr(snr_of_alpha(1 - lost, lost, V), V), lost, atol=0, rtol=1e-9)


@pytest.mark.parametrize("V", SIZES)
def test_inverse_is_monotone(V):
    signal = signal_of_alpha(torch.linspace(0, 1, 1001, dtype=torch.float64), V)
    assert bool((signal.diff() > 0).all())
