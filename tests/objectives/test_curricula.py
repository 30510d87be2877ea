"""The weight of the identification term grows as it should; rounds begin and end where integers say; step sizes never
leave (0, 1]."""

from itertools import pairwise
from typing import Any

import pytest

from multimdm.objectives import Ramp, SdttSettings
from multimdm.objectives.curricula import Rounds

SMALL = [(steps, rounds) for steps in range(1, 61) for rounds in range(1, 11) if steps % rounds == 0]


def small(rounds: int, growth: int = 2, **settings) -> Rounds:
    """As many rounds as fit below 1, exactly: the last step size is 1."""
    return Rounds(delta=float(growth) ** (1 - rounds), rounds=rounds, growth=growth, **settings)


@pytest.mark.parametrize(("steps", "rounds"), SMALL)
def test_rounds_have_equal_numbers_of_steps(steps, rounds):
    """Round floor(k / (steps / rounds)), as the paper has it."""
    settings, length = small(rounds), steps // rounds
    assert [settings.round(k, steps) for k in range(steps)] == [k // length for k in range(steps)]


@pytest.mark.parametrize(("steps", "rounds"), SMALL)
def test_a_round_ends_where_another_begins(steps, rounds):
    """Before the first step of each round but the first; after the last step nothing begins."""
    settings, length = small(rounds), steps // rounds
    ends = [k for k in range(steps) if settings.ends_round(k, steps)]
    assert ends == [number * length - 1 for number in range(1, rounds)]


@pytest.mark.parametrize("steps", range(7, 40))
@pytest.mark.parametrize("rounds", [3, 7])
def test_steps_that_rounds_do_not_divide(steps, rounds):
    """Recipes refuse them; still every round has its steps, within one of an equal share."""
    settings = small(rounds)
    numbers = [settings.round(k, steps) for k in range(steps)]
    lengths = [numbers.count(number) for number in range(rounds)]
    assert sum(lengths) == steps
    assert {steps // rounds, -(-steps // rounds)} >= set(lengths)
    assert sum(settings.ends_round(k, steps) for k in range(steps)) == rounds - 1


def test_boundaries_are_exact_beyond_the_precision_of_floats():
    settings, length = small(7), 10**17
    for number in range(1, 7):
        assert settings.round(number * length - 1, 7 * length) == number - 1
        assert settings.round(number * length, 7 * length) == number
        assert settings.ends_round(number * length - 1, 7 * length)
        assert not settings.ends_round(number * length, 7 * length)


@pytest.mark.parametrize("growth", [2, 4, 8])
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_dyadic_sizes_grow_by_the_factor_from_round_to_round(growth, rounds):
    settings, steps = small(rounds, growth), 6 * rounds
    sizes = [settings.size(k, steps) for k in range(steps)]
    assert sizes == [float(growth) ** (k // 6 - rounds + 1) for k in range(steps)]
    assert sizes[-1] == settings.last == 1.0


def test_the_papers_schedule():
    """delta_k = 2 ^ (-9 + floor(k / 10^4)), five rounds."""
    settings = Rounds()
    for k in (0, 9_999, 10_000, 29_999, 30_000, 49_999):
        assert settings.size(k, 50_000) == 2.0 ** (-9 + k // 10_000)


@pytest.mark.parametrize("steps", [2, 3, 10, 61])
def test_linear_sizes_grow_evenly_from_the_first_to_the_last(steps):
    settings = Rounds(delta=2.0**-6, rounds=4, growth=2, schedule="linear")
    sizes = [settings.size(k, steps) for k in range(steps)]
    assert (sizes[0], sizes[-1]) == (2.0**-6, 2.0**-3)
    differences = [later - earlier for earlier, later in pairwise(sizes)]
    assert differences == pytest.approx([(2.0**-3 - 2.0**-6) / (steps - 1)] * (steps - 1))


def test_one_step():
    for schedule in ("dyadic", "linear"):
        settings = Rounds(delta=0.25, rounds=1, schedule=schedule)
        assert settings.size(0, 1) == 0.25
        assert not settings.ends_round(0, 1)


@pytest.mark.parametrize("schedule", ["dyadic", "linear"])
@pytest.mark.parametrize("delta", [0.1, 1 / 3, 1 / 27, 1.0])
@pytest.mark.parametrize("growth", [2, 3, 10])
def test_a_size_is_never_above_one(delta, growth, schedule):
    """Rounding may carry the last one just above 1, as 3 * (1 / 3) may: it counts as 1."""
    rounds = max(r for r in range(1, 9) if delta * growth ** (r - 1) <= 1 + 1e-9)
    settings = Rounds(delta=delta, rounds=rounds, growth=growth, schedule=schedule)
    sizes = [settings.size(k, 5 * rounds) for k in range(5 * rounds)]
    assert sizes == sorted(sizes)
    assert delta <= sizes[0] <= sizes[-1] <= 1


@pytest.mark.parametrize("delta", [2.0**-9, 0.03, 0.5, 1.0])
@pytest.mark.parametrize("growth", [2, 3, 7])
def test_more_rounds_than_reach_one_name_the_remedy(delta, growth):
    """The number of rounds that the message allows is right: it works, and one more does not."""
    with pytest.raises(ValueError, match="would exceed 1, the whole time, in the last of 40 rounds; begin") as error:
        Rounds(delta=delta, rounds=40, growth=growth)
    (most,) = (int(words.split()[0]) for words in str(error.value).split("at most ")[1:])
    assert Rounds(delta=delta, rounds=most, growth=growth).last <= 1
    with pytest.raises(ValueError, match=f"in the last of {most + 1} rounds.* take at most {most} rounds"):
        Rounds(delta=delta, rounds=most + 1, growth=growth)


def test_far_too_many_rounds():
    with pytest.raises(ValueError, match="take at most 10 rounds"):
        Rounds(rounds=2_000)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"delta": 1.5, "rounds": 1}, "delta\n.*less than or equal to 1"),
        ({"delta": 0.0}, "delta\n.*greater than or equal to"),
        ({"delta": float("nan")}, "delta\n"),
        ({"rounds": 0}, "rounds\n.*greater than or equal to 1"),
        ({"growth": 1}, "growth\n.*greater than or equal to 2"),
        ({"schedule": "cosine"}, "schedule\n.*'dyadic' or 'linear'"),
        ({"size": 2}, "size"),
    ],
)
@pytest.mark.unchecked
def test_bad_settings(settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Rounds(**settings)


# ------------------------------------------------------------------------- SDTT


def test_the_teachers_steps_fit_into_the_time():
    """Two steps of 1/2 do; three do not, nor two of them in a round more."""
    assert SdttSettings(delta=0.5, rounds=1, teacher_steps=2).last == 0.5
    assert SdttSettings(delta=1 / 3, rounds=1, teacher_steps=3).teacher_steps == 3
    too_much: list[dict[str, Any]] = [{"rounds": 1, "teacher_steps": 3}, {"rounds": 2, "teacher_steps": 2}]
    for settings in too_much:
        with pytest.raises(ValueError, match="more than the whole time from 0 to 1; take fewer rounds or a smaller"):
            SdttSettings(delta=0.5, **settings)


def test_the_published_rounds():
    """Two teacher steps of 2^-10 at first, of 2^-4 at last: the last student takes 8 steps."""
    settings = SdttSettings()
    assert [settings.size(10_000 * r, 70_000) for r in range(7)] == [2.0 ** (r - 10) for r in range(7)]
    assert settings.last * settings.teacher_steps == 1 / 8


def test_what_rounds_refuse_sdtt_refuses():
    with pytest.raises(ValueError, match="take at most"):
        SdttSettings(delta=0.5, rounds=4)


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
