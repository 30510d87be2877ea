"""The chunked head equals the plain one, in value and gradient, and keeps nothing large."""

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from multimdm.models.head import reduce_logits
from multimdm.process import MultiMask


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("entries", [1, 200, 10**6])
def test_loss_and_gradients_are_those_of_the_plain_computation(dtype, entries, monkeypatch):
    monkeypatch.setattr("multimdm.models.head._CHUNK_ENTRIES", entries)
    torch.manual_seed(0)
    process, N, d, V = MultiMask(40, 5), 23, 8, 40
    x_0 = torch.randint(0, V, (N,))
    x_t, t = process.prior((N,)), torch.rand(N, dtype=dtype)
    inputs = features, weight, bias = [
        torch.randn(shape, dtype=dtype, requires_grad=True) for shape in ((N, d), (V, d), (V,))
    ]

    def loss(logits, rows):
        terms = process.loss(logits.log_softmax(-1), x_0[rows], x_t[rows], t[rows])
        return terms.total.sum(), terms.reconstruction, logits.argmax(-1)

    chunked, terms, guesses = reduce_logits(features, weight, bias, loss)
    plain, plain_terms, plain_guesses = loss(F.linear(features, weight, bias), slice(None))
    tolerance: dict[str, Any] = (
        {"rtol": 2e-5, "atol": 2e-4} if dtype is torch.float32 else {"rtol": 1e-10, "atol": 1e-10}
    )
    torch.testing.assert_close(chunked, plain, **tolerance)
    torch.testing.assert_close(terms, plain_terms, **tolerance)
    assert torch.equal(guesses, plain_guesses)
    assert not terms.requires_grad
    gradients = [torch.autograd.grad(3 * value, inputs) for value in (chunked, plain)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, **tolerance)


def test_what_is_kept_outlives_the_logits_and_rows_without_a_loss_have_no_slope(monkeypatch):
    """Slopes are written over the logits: of 23 rows four are reduced at once and sixteen multiplied."""
    monkeypatch.setattr("multimdm.models.head._CHUNK_ENTRIES", 4 * 7)
    torch.manual_seed(0)
    inputs = features, weight, bias = [torch.randn(shape, requires_grad=True) for shape in ((23, 3), (7, 3), (7,))]
    seen = []

    def reduce(logits, rows):
        seen.append((rows.start, rows.stop))
        share = logits.square().sum() if rows.start % 8 == 0 else logits.new_zeros(())
        return share, logits, logits[:, 2]

    loss, kept, column = reduce_logits(features, weight, bias, reduce)
    assert seen == [(0, 4), (4, 8), (8, 12), (12, 16), (16, 20), (20, 23)]
    logits = F.linear(features, weight, bias)
    torch.testing.assert_close(kept, logits)
    torch.testing.assert_close(column, logits[:, 2])
    plain = logits[torch.arange(23) // 4 % 2 == 0].square().sum()
    torch.testing.assert_close(loss, plain)
    for one, other in zip(torch.autograd.grad(loss, inputs), torch.autograd.grad(plain, inputs), strict=True):
        torch.testing.assert_close(one, other)


def test_the_gradient_of_the_matrix_is_not_filled_with_zeros_before_it_is_written():
    """A pass over the largest tensor of a step, and its memory twice."""
    with torch.profiler.profile(record_shapes=True) as profiled:
        features, weight = torch.randn(5, 3, requires_grad=True), torch.randn(701, 3, requires_grad=True)
        bias = torch.zeros(701, requires_grad=True)
        loss = reduce_logits(features, weight, bias, lambda logits, rows: logits.square().sum())
        assert isinstance(loss, torch.Tensor)
        loss.backward()
    events = profiled.events() or ()
    filled = [event.input_shapes[0] for event in events if event.name in ("aten::fill_", "aten::zero_")]
    assert filled
    assert [701, 3] not in filled


def test_without_a_loss_there_is_no_gradient_and_no_graph():
    features, weight, bias = torch.randn(5, 3, requires_grad=True), torch.randn(7, 3), torch.randn(7)
    best = reduce_logits(features, weight, bias, lambda logits, rows: logits.argmax(-1))
    assert isinstance(best, torch.Tensor)
    assert torch.equal(best, F.linear(features, weight, bias).argmax(-1))
    assert not best.requires_grad


def test_no_rows():
    loss = reduce_logits(torch.zeros(0, 3), torch.zeros(7, 3), torch.zeros(7), lambda logits, rows: logits.sum())
    assert isinstance(loss, torch.Tensor)
    assert float(loss) == 0


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_no_gradient_is_computed_when_none_is_wanted(mode):
    wanted = []
    weight = torch.randn(7, 3, requires_grad=True)
    with mode():
        reduce_logits(
            torch.randn(5, 3), weight, torch.zeros(7), lambda x, rows: (wanted.append(x.requires_grad), x.sum())[1]
        )
    assert wanted == [False]


def test_under_autocast():
    torch.manual_seed(0)
    features, weight, bias = (
        torch.randn(9, 8, requires_grad=True),
        torch.randn(30, 8, requires_grad=True),
        torch.zeros(30),
    )
    gradients = []
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = reduce_logits(features, weight, bias, lambda x, rows: -x.float().log_softmax(-1)[:, 0].sum())
        assert isinstance(loss, torch.Tensor)
        gradients.append(torch.autograd.grad(loss, (features, weight)))
    for exact, rounded in zip(*gradients, strict=True):
        torch.testing.assert_close(exact, rounded, atol=0.05, rtol=0.05)
