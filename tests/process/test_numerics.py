"""Finite and right at the ends of time, at the largest sizes, in single precision."""

import mpmath
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


@pytest.mark.parametrize("process", [MultiMask(200, 7), Uniform(200)], ids=str)
def test_bfloat16_predictions_do_not_round_the_times(process):
    probs = torch.softmax(torch.randn(200, generator=torch.Generator().manual_seed(0)), 0).expand(2, 200).bfloat16()
    x_t = process.prior((2,), torch.Generator().manual_seed(1))
    for s, t in ((0.5, 0.501), (0.998, 0.999), (0.7, 0.75)):
        for name in ("reverse", "model_scores", "posterior_weights"):
            arguments = (s, t) if name == "reverse" else (t,)
            single, double = (getattr(process, name)(p, x_t, *arguments) for p in (probs, probs.double()))
            assert single.dtype == torch.bfloat16
            torch.testing.assert_close(single.double(), double, rtol=0.02, atol=1e-12)
    loss = process.loss(probs.float().log().bfloat16(), torch.tensor([1, 2]), x_t, 1e-4)
    assert loss.total.dtype == torch.float32
    assert bool(loss.total.isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_kernels_agree_with_many_digits_at_the_ends_of_time(dtype, kind):
    """Against fifty digits: the mask part of the posterior, Eq. (backward_kernel_masks_app)."""
    M, rho = 5, 0.7
    process = MultiMask(10, M, Schedule(rho=rho, kind=kind))
    for s, t in ((1e-30, 3e-30), (1e-12, 1e-6), (0.5, 1 - 2**-20), (1 - 2**-10, 1 - 2**-20), (0.3, 1.0)):
        s, t = (float(torch.tensor(u, dtype=dtype)) for u in (s, t))
        for k in (3, 1):  # the designated mask of token 3, and another
            kernel = process.posterior(
                torch.tensor(3), torch.tensor(10 + k), torch.tensor(s, dtype=dtype), torch.tensor(t, dtype=dtype)
            )
            with mpmath.workdps(80):
                alpha = [1 - mpmath.mpf(u) if kind == "linear" else mpmath.cos(mpmath.pi * u / 2) for u in (s, t)]
                if t == 1.0:
                    alpha[1] = mpmath.mpf(0)
                beta = [a**rho for a in alpha]
                r = [[(b if j == 3 else 0) + (1 - b) / M for j in range(M)] for b in beta]
                ratio = beta[1] / beta[0]
                hidden = (1 - alpha[0]) / (1 - alpha[1])
                expected = [
                    float(hidden * r[0][j] * ((ratio if j == k else 0) + (1 - ratio) / M) / r[1][k]) for j in range(M)
                ]
            assert kernel[10:].tolist() == pytest.approx(expected, rel=1e-5 if dtype is torch.float32 else 1e-12)


@pytest.mark.parametrize("t", [1e-12, 1e-5, 0.5, 1 - 1e-6, 1 - 1e-12])
@pytest.mark.parametrize("rho", [0.5, 1.0, 2.0])
def test_identification_agrees_with_many_digits(t, rho):
    """The second line of Eq. (per_coordinate_loss_main), as printed, with sixty digits."""
    V, M = 8, 4
    process = MultiMask(V, M, Schedule(rho=rho))
    logits = torch.tensor([0.3, -1.2, 2.0, 0.1, -0.4, 0.9, 1.1, -2.2], dtype=torch.float64)
    log_probs = logits.log_softmax(-1)
    for x_0, k in ((2, 2), (2, 1)):
        with mpmath.workdps(60):
            beta = (1 - mpmath.mpf(t)) ** rho
            weight = mpmath.mpf(rho) / (1 - mpmath.mpf(t)) / M
            p = [mpmath.exp(mpmath.mpf(float(x))) for x in log_probs]
            p = [x / sum(p) for x in p]

            def r(token, mask, beta=beta):
                return (beta if token % M == mask else 0) + (1 - beta) / M

            total = mpmath.mpf(0)
            for j in (j for j in range(M) if j != k):
                psi = r(x_0, j) / r(x_0, k)
                psi_theta = sum(p[a] * r(a, j) / r(a, k) for a in range(V))
                total += psi * mpmath.log(psi / psi_theta) + psi_theta - psi
            expected = float(weight * total)
        value = process.loss(log_probs, torch.tensor(x_0), torch.tensor(V + k), torch.tensor(t, dtype=torch.float64))
        assert float(value.identification) == pytest.approx(expected, rel=1e-9)


def test_a_gradient_in_time_is_not_given():
    t = torch.tensor(0.5, requires_grad=True)
    log_probs = torch.full((1, 4), 0.25).log().requires_grad_()
    loss = MultiMask(4, 2).loss(log_probs, torch.tensor([1]), torch.tensor([4]), t)
    loss.total.sum().backward()
    assert t.grad is None
    assert log_probs.grad is not None


def test_scores_of_visible_tokens_have_finite_gradients_at_time_zero():
    probs = torch.full((2, 5), 0.2, requires_grad=True)
    scores = MultiMask(5, 2).model_scores(probs, torch.tensor([1, 2]), 0.0)
    scores.sum().backward()
    assert probs.grad is not None
    assert bool(probs.grad.isfinite().all())
