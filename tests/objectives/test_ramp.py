"""The weight of the identification term in the course of training."""

import pytest

from multimdm.objectives import Ramp


def test_no_ramp_is_the_elbo():
    assert [Ramp()(progress) for progress in (0.0, 0.5, 1.0)] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("shape", ["linear", "cosine"])
def test_off_then_growing_then_full(shape):
    ramp = Ramp(start=0.2, end=0.6, shape=shape, weight=0.8)
    assert [ramp(p) for p in (0.0, 0.1, 0.2)] == [0.0, 0.0, 0.0]
    assert ramp(0.4) == pytest.approx(0.4)
    assert [ramp(p) for p in (0.6, 0.9, 1.0)] == [0.8, 0.8, 0.8]
    grown = [ramp(0.2 + 0.4 * i / 20) for i in range(21)]
    assert grown == sorted(grown)


def test_the_cosine_starts_slowly():
    assert Ramp(end=1.0, shape="cosine")(0.1) < Ramp(end=1.0, shape="linear")(0.1)


def test_a_ramp_that_ends_before_it_starts_is_an_error():
    with pytest.raises(ValueError, match=r"end must not come before start; got start 0.5 and end 0.2"):
        Ramp(start=0.5, end=0.2)
