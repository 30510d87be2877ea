"""Divergences are their definitions, in value and gradient, and know who is the student."""

import math

import pytest
import torch

from multimdm.objectives.divergence import divergence
from support.plain_divergence import KINDS, plain_divergence
from support.processes import random_prediction

ALL = pytest.mark.parametrize("kind", KINDS)
NO = -torch.inf


def student_and_teacher(rows: int = 6, V: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits that are not normalised, and log-probabilities."""
    return 3 + random_prediction(rows, V, seed=1), random_prediction(rows, V, seed=2)


@ALL
def test_value_and_gradient_are_those_of_the_definition(kind):
    logits, teacher = student_and_teacher()
    weights = torch.linspace(-1, 2, len(logits), dtype=torch.float64)  # rows must not be mixed up
    results = []
    for of in (lambda x: divergence(kind, x, teacher), lambda x: plain_divergence(kind, x.log_softmax(-1), teacher)):
        given = logits.clone().requires_grad_()
        value = of(given)
        (gradient,) = torch.autograd.grad(weights @ value, given)
        results.append((value.detach(), gradient))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)


@ALL
def test_the_gradient_is_the_slope(kind):
    logits, teacher = student_and_teacher(4, 5)
    assert torch.autograd.gradcheck(lambda x: divergence(kind, x, teacher), logits.requires_grad_())


@ALL
def test_equal_distributions_are_at_distance_zero_and_others_are_not(kind):
    _, teacher = student_and_teacher()
    same = (teacher + 5.0).requires_grad_()  # a constant changes no distribution
    value = divergence(kind, same, teacher)
    (gradient,) = torch.autograd.grad(value.sum(), same)
    assert float(value.detach().abs().max()) < 1e-13
    assert float(gradient.abs().max()) < (1e-13 if kind != "tvd" else 1)  # |x| has any slope up to 1 at 0
    assert float(divergence(kind, teacher.roll(1, dims=-1), teacher).min()) > 1e-3


def test_known_values():
    """Student (1/2, 1/2), teacher (1/4, 3/4): by hand. The two KLs are not swapped."""
    student, teacher = torch.zeros(1, 2, dtype=torch.float64), torch.tensor([[0.25, 0.75]], dtype=torch.float64).log()
    values = {kind: float(divergence(kind, student, teacher)) for kind in KINDS}
    assert values == pytest.approx(
        {
            "reverse_kl": (math.log(2) + math.log(2 / 3)) / 2,
            "forward_kl": (math.log(1 / 2) + 3 * math.log(3 / 2)) / 4,
            "mse": 2 * 0.25**2,
            "tvd": 0.25,
        },
        rel=1e-12,
    )


@ALL
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_columns_that_neither_can_predict_count_nothing(kind, dtype):
    logits, teacher = student_and_teacher()
    out = torch.tensor([0, 3, 4])
    seen = [column for column in range(9) if column not in out]
    logits, teacher = logits.to(dtype).index_fill(1, out, NO), teacher.to(dtype).index_fill(1, out, NO).log_softmax(-1)
    logits.requires_grad_()
    value = divergence(kind, logits, teacher)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    fewer = logits.detach()[:, seen].requires_grad_()
    expected = plain_divergence(kind, fewer.log_softmax(-1), teacher[:, seen])
    (slope,) = torch.autograd.grad(expected.sum(), fewer)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient[:, seen], slope)
    assert bool((gradient[:, out] == 0).all())


@ALL
def test_float32_or_better(kind):
    logits, teacher = student_and_teacher()
    expected = divergence(kind, logits, teacher)
    for dtype, result in ((torch.bfloat16, torch.float32), (torch.float32, torch.float32)):
        given = logits.to(dtype).requires_grad_()
        value = divergence(kind, given, teacher.to(dtype))
        assert value.dtype == result
        torch.testing.assert_close(value.double(), expected, rtol=0.1 if dtype is torch.bfloat16 else 1e-5, atol=1e-2)
        (gradient,) = torch.autograd.grad(value.sum(), given)
        assert gradient.dtype == dtype


@ALL
def test_the_teacher_is_a_constant(kind):
    logits, teacher = student_and_teacher()
    divergence(kind, logits.requires_grad_(), teacher.requires_grad_()).sum().backward()
    assert teacher.grad is None


@ALL
def test_the_arguments_are_left_as_they_were(kind):
    logits, teacher = student_and_teacher()
    before = logits.clone(), teacher.clone()
    divergence(kind, logits, teacher)
    assert torch.equal(logits, before[0])
    assert torch.equal(teacher, before[1])


@ALL
def test_no_rows(kind):
    logits = torch.zeros(0, 5, requires_grad=True)
    value = divergence(kind, logits, torch.zeros(0, 5))
    value.sum().backward()
    assert value.shape == (0,)


def test_what_the_teacher_excludes_is_infinitely_wrong_for_reverse_kl():
    """Why a certain prediction cannot be a target of reverse KL."""
    certain = torch.tensor([[0.0, NO]])
    assert divergence("reverse_kl", torch.zeros(1, 2), certain).tolist() == [torch.inf]


def test_what_only_one_can_predict_counts_nothing_where_its_weight_is_zero():
    """0 log 0 = 0: forward KL weighs by the teacher, reverse KL by the student."""
    even, certain = torch.zeros(1, 2), torch.tensor([[0.0, NO]])
    assert float(divergence("forward_kl", even, certain)) == pytest.approx(math.log(2))
    assert float(divergence("reverse_kl", certain, even.log_softmax(-1))) == pytest.approx(math.log(2))


def test_a_broken_teacher_is_not_hidden():
    for kind in KINDS:
        assert bool(divergence(kind, torch.zeros(1, 2), torch.full((1, 2), torch.nan)).isnan().all())


@pytest.mark.unchecked
def test_an_unknown_divergence():
    with pytest.raises(ValueError, match="divergence must be one of reverse_kl, forward_kl, mse, tvd; got 'l2'"):
        divergence("l2", *student_and_teacher())  # pyright: ignore[reportArgumentType]
