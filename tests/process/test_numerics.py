"""Finite and right at the ends of time, at the largest sizes, in single precision."""

import pytest
import torch

from multimdm.process import MultiMask, Process, Schedule, Uniform

SIZES = {
    "V=3 M=1": lambda rho: MultiMask(3, 1, Schedule(rho=rho)),
    "V=3 M=3": lambda rho: MultiMask(3, 3, Schedule(rho=rho)),
    "V=1000 M=500": lambda rho: MultiMask(1000, 500, Schedule(rho=rho)),
    "V=50258 M=1": lambda rho: MultiMask(50_258, 1, Schedule(rho=rho)),
    "V=50258 M=500": lambda rho: MultiMask(50_258, 500, Schedule(rho=rho)),
    "uniform V=3": lambda rho: Uniform(3),
    "uniform V=50258": lambda rho: Uniform(50_258),
}
EVERY = pytest.mark.parametrize("make", SIZES.values(), ids=SIZES)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
TIMES = [1e-30, 1e-12, 1e-7, 1e-3, 0.5, 1 - 1e-3, 1 - 2**-24, 1.0]


def reachable(process: Process, t: float) -> tuple[torch.Tensor, torch.Tensor]:
    """(x_0, x_t) of every kind that has positive probability at t > 0."""
    x_0 = 1
    if not isinstance(process, MultiMask):
        return torch.tensor([x_0, x_0]), torch.tensor([x_0, 2])
    V = process.vocab_size
    home = int(process.designated_mask(torch.tensor(x_0)))
    away = [V + (home - V + 1) % process.num_masks] if process.num_masks > 1 else []
    visible = [x_0] if t < 1 else []
    x_t = torch.tensor([*visible, home, *away])
    return torch.full_like(x_t, x_0), x_t


def predictions(V: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Flat, sharp and right, sharp and wrong."""
    flat = torch.zeros(V, dtype=dtype)
    right, wrong = flat.clone(), flat.clone()
    right[1], wrong[2] = 60.0, 60.0
    return {"flat": flat, "right": right, "wrong": wrong}


@EVERY
@DTYPES
@pytest.mark.parametrize("rho", [0.5, 1.0, 3.0])
def test_loss_and_gradient_are_finite_and_agree_with_double_precision(make, dtype, rho):
    process = make(rho)
    # Below 1e-8 gradients of wrong predictions, of order (M / t)^2, leave the range of float32.
    for t in TIMES if dtype is torch.float64 else [t for t in TIMES if t > 1e-8]:
        x_0, x_t = reachable(process, t)
        for logits in predictions(process.vocab_size, dtype).values():
            losses = []
            for precision in (dtype, torch.float64):
                rows = logits.to(precision).expand(len(x_t), -1).clone().requires_grad_()
                time = torch.tensor(t, dtype=dtype).to(precision)
                loss = process.loss(rows.log_softmax(-1), x_0, x_t, time)
                (gradient,) = torch.autograd.grad(loss.total.sum(), rows)
                assert bool(loss.total.isfinite().all())
                assert bool((loss.identification >= 0).all())
                assert bool(gradient.isfinite().all())
                losses.append(loss.total.detach().double())
            # In units of the reconstruction weight 1/t, in which the loss is a number of nats.
            torch.testing.assert_close(losses[0] * t, losses[1] * t, atol=2e-4, rtol=2e-4)


@EVERY
@DTYPES
def test_kernels_are_finite_distributions(make, dtype):
    process = make(0.7)
    times = [torch.tensor(t, dtype=dtype) for t in TIMES]
    for t in times:
        x_0, x_t = reachable(process, float(t))
        for s in (torch.tensor(0.0, dtype=dtype), t / 2, t * (1 - 2**-20)):
            probs = torch.softmax(predictions(process.vocab_size, dtype)["right"], -1).expand(len(x_t), -1)
            for kernel in (
                process.marginal(x_0, t),
                process.transition(x_t, s, t),
                process.posterior(x_0, x_t, s, t),
                process.reverse(probs, x_t, s, t),
            ):
                assert bool((kernel >= 0).all())
                torch.testing.assert_close(kernel.sum(-1), torch.ones(len(x_t), dtype=dtype), atol=1e-5, rtol=0)
            draws = process.reverse_sample(x_0, x_t, s, t, torch.Generator().manual_seed(0))
            assert bool((process.posterior(x_0, x_t, s, t).gather(1, draws[:, None]) > 0).all())


def test_identification_near_time_zero_does_not_round_to_nothing():
    """The printed form of psi cancels there in float32: 1 - beta / (beta + (1 - beta) / M) rounds to 0."""
    process = MultiMask(100, 50)
    x_0, x_t = torch.tensor([3]), torch.tensor([103])
    logits = torch.zeros(1, 100)
    logits[0, 3] = 9.0
    for t in (1e-7, 1e-5, 1e-3):
        single = process.loss(logits.log_softmax(-1), x_0, x_t, torch.tensor(t)).identification
        double = process.loss(logits.double().log_softmax(-1), x_0, x_t, torch.tensor(t).double()).identification
        torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=0)
        assert float(single) > 0


@pytest.mark.parametrize(("rho", "value"), [(0.5, True), (0.75, True), (1.0, True), (0.4, False)])
def test_identification_at_time_one(rho, value):
    """Continuous at t = 1 for rho >= 1/2; infinite below, as documented."""
    process = MultiMask(6, 3, Schedule(rho=rho))
    log_probs = torch.log_softmax(torch.tensor([[0.0, 1.0, -1.0, 0.5, 0.2, 2.0]], dtype=torch.float64), -1)
    x_0, x_t = torch.tensor([1]), torch.tensor([8])
    at_end = process.loss(log_probs, x_0, x_t, torch.tensor(1.0, dtype=torch.float64)).identification
    before = process.loss(log_probs, x_0, x_t, torch.tensor(1 - 1e-12, dtype=torch.float64)).identification
    if value:
        torch.testing.assert_close(at_end, before, atol=1e-5, rtol=1e-5)
    else:
        assert float(at_end) == float("inf")


def test_visible_positions_have_no_loss_and_no_gradient_even_at_time_zero():
    process, x_0 = MultiMask(5, 2), torch.tensor([1, 2])
    logits = torch.randn(2, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = process.loss(logits.log_softmax(-1), x_0, x_0, 0.0)
    loss.total.sum().backward()
    assert bool((loss.total == 0).all())
    assert logits.grad is not None
    assert bool((logits.grad == 0).all())


def test_uniform_loss_at_time_zero_is_its_limit():
    process, x = Uniform(4), torch.tensor([1])
    log_probs = torch.log_softmax(torch.tensor([[0.0, 1.0, -1.0, 0.5]], dtype=torch.float64), -1)
    q = float(log_probs[0, 1].exp())
    loss = process.loss(log_probs, x, x, torch.tensor(0.0, dtype=torch.float64)).total
    assert float(loss) == pytest.approx((1 - q) / q / 4)
    near = process.loss(log_probs, x, x, torch.tensor(1e-10, dtype=torch.float64)).total
    assert float(near) == pytest.approx(float(loss), rel=1e-6)


@EVERY
def test_corruption_at_the_ends(make):
    process = make(1.0)
    x_0 = torch.randint(0, process.vocab_size, (1000,), generator=torch.Generator().manual_seed(0))
    assert torch.equal(process.corrupt(x_0, 0.0), x_0)
    end = process.corrupt(x_0, 1.0)
    assert bool((end >= (process.vocab_size if process.num_masks else 0)).all())
    start, finish = process.couple(x_0, [0.0, 1.0])
    assert torch.equal(start, x_0)
    assert bool((finish >= (process.vocab_size if process.num_masks else 0)).all())
