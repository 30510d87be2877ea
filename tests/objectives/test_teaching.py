"""A lesson is the teacher's table at the packed positions, whatever kind of network the teacher is."""

import pytest
import torch

from multimdm.models import DiT
from multimdm.objectives.teaching import Lesson, TwoPart
from support.tabular import as_function
from support.tiny_models import tiny_dit

V, B, L = 13, 4, 6
VALID = torch.arange(L) < torch.tensor([6, 4, 6, 1])[:, None]
T = torch.tensor([0.1, 0.4, 0.7, 1.0], dtype=torch.float64)


def network(seed: int = 0) -> DiT:
    return tiny_dit(V, 2, L, seed=seed).double()


def states(seed: int = 1) -> torch.Tensor:
    return torch.randint(0, V + 2, (B, L), generator=torch.Generator().manual_seed(seed))


def some_positions() -> torch.Tensor:
    return torch.rand(B, L, generator=torch.Generator().manual_seed(2)) < 0.6


KINDS = pytest.mark.parametrize("teacher", [network(), as_function(network())], ids=["two parts", "function"])


def test_what_can_stop_before_its_head():
    assert isinstance(network(), TwoPart)
    assert not isinstance(as_function(network()), TwoPart)


@KINDS
@pytest.mark.parametrize("valid", [None, VALID], ids=["whole", "padded"])
def test_any_rows_are_those_of_the_full_table(teacher, valid):
    positions = some_positions()
    lesson = Lesson(teacher, states(), T, positions, valid)
    expected = network()(states(), T, None, valid)[positions].detach()
    assert len(lesson) == int(positions.sum())
    for start in range(0, len(lesson), 5):
        rows = slice(start, min(start + 5, len(lesson)))
        torch.testing.assert_close(lesson.logits(rows), expected[rows])
    assert lesson.logits(slice(3, 3)).shape == (0, V)


@KINDS
def test_a_lesson_in_which_nothing_is_asked(teacher):
    lesson = Lesson(teacher, states(), T, torch.zeros(B, L, dtype=torch.bool), None)
    assert len(lesson) == 0
    assert lesson.logits(slice(0, 0)).shape == (0, V)


@KINDS
def test_rows_may_be_replaced_by_those_of_another_lesson(teacher):
    """The other one is about fewer positions: the rows that remain."""
    positions, later = some_positions(), some_positions() & (states(3) % 2 == 0)
    first, second = Lesson(teacher, states(), T, positions, None), Lesson(teacher, states(4), T / 2, later, None)
    expected = first.logits(slice(0, len(first))).clone()
    expected[later[positions]] = second.logits(slice(0, len(second)))
    first.replace(later[positions].nonzero()[:, 0], second)
    torch.testing.assert_close(first.logits(slice(0, len(first))), expected)


@KINDS
def test_no_gradient_reaches_the_teacher(teacher):
    lesson = Lesson(teacher, states(), T, some_positions(), None)
    assert not lesson.logits(slice(0, len(lesson))).requires_grad


@KINDS
def test_low_precision_is_widened(teacher):
    """A teacher in bfloat16 is compared in float32, one in float64 in float64."""
    for dtype, wide in ((torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64,) * 2):
        cast = network().to(dtype)
        lesson = Lesson(cast if isinstance(teacher, DiT) else as_function(cast), states(), T, some_positions(), None)
        assert lesson.logits(slice(0, 4)).dtype == wide


def test_the_body_runs_once_and_the_head_on_the_rows_that_are_asked_for():
    """What is kept of a network in two parts is [N, d]: no table of logits exists between the calls."""
    teacher, seen = network(), []

    class Watched:
        def __call__(self, *args):
            raise AssertionError("the whole network is not to run")

        def features(self, *args):
            seen.append("body")
            return teacher.features(*args)

        def logits(self, features):
            seen.append(len(features))
            return teacher.logits(features)

    lesson = Lesson(Watched(), states(), T, some_positions(), None)
    lesson.logits(slice(0, 4))
    lesson.logits(slice(4, 6))
    assert seen == ["body", 4, 2]
