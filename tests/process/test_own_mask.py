"""Predictions from the context: what the own mask tells joins by Bayes' rule, once, in every form that is in use."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from multimdm.process import MultiMask, Schedule, random_balanced
from multimdm.process.evidence import evidence
from support.oracle import Oracle
from support.processes import bayes, random_prediction

V = 7
ASSIGNMENTS = {"modulo": None, "random": random_balanced(V, 3, seed=4)}


def pair(num_masks: int = 3, assignment=None, rho: float = 0.8) -> tuple[MultiMask, MultiMask]:
    """The same process with both readings: of posteriors, and of predictions from the context."""
    plain, read = (
        MultiMask(V, num_masks, Schedule(rho), assignment, readout=readout) for readout in ("posterior", "context")
    )
    return plain, read


def f64(t: float) -> torch.Tensor:
    return torch.tensor(t, dtype=torch.float64)


@pytest.mark.parametrize("assignment", ASSIGNMENTS.values(), ids=ASSIGNMENTS)
@given(t=st.floats(1e-6, 1.0), seed=st.integers(0, 100))
def test_logits_and_weights_are_bayes_rule(assignment, t, seed):
    _, process = pair(assignment=assignment)
    x_t = torch.arange(V, V + 3)
    context = random_prediction(3, V, seed=seed)
    expected = bayes(process, context.exp(), x_t, f64(t))
    from_logits = process.posterior_logits(context + 5, x_t, f64(t)).softmax(-1)
    weights = process.posterior_weights(2 * context.exp(), x_t, f64(t))
    torch.testing.assert_close(from_logits, expected, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(weights / weights.sum(-1, keepdim=True), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("t", [0.03, 0.5, 0.97])
def test_a_perfect_prediction_from_the_context_becomes_the_exact_posterior(t):
    """On two positions that depend on each other, by enumeration of all texts and states."""
    plain, process = pair()
    context, posterior = Oracle(process).predictions(t), Oracle(plain).predictions(t)
    states = torch.cartesian_prod(torch.arange(process.num_states), torch.arange(process.num_states))
    x_t = states.view(process.num_states, process.num_states, 2)
    hidden = process.active(x_t)
    assert not torch.allclose(context[hidden], posterior[hidden], atol=1e-3)
    found = process.posterior_logits(context.log(), x_t, f64(t)).softmax(-1)
    torch.testing.assert_close(found[hidden], posterior[hidden], rtol=1e-12, atol=1e-14)


def test_what_joins_is_the_logarithm_of_one_plus_m_beta_over_the_rest():
    _, process = pair()
    beta = 0.4**0.8
    gained = process.posterior_logits(torch.zeros(V), torch.tensor(V + 1), 0.6)
    own = torch.arange(V) % 3 == 1
    difference = float(gained[own][0] - gained[~own][0])
    assert difference == pytest.approx(float(torch.log1p(f64(3 * beta / (1 - beta)))), rel=1e-6)
    assert gained[own].unique().numel() == 1
    assert gained[~own].unique().numel() == 1


def test_at_the_ends_of_time_there_are_numbers():
    """At t = 1 nothing joins, to the last bit; at t = 0 only the tokens of the mask that is seen remain."""
    _, process = pair()
    x_t, logits = torch.tensor([V, V + 2]), random_prediction(2, V).float()
    assert torch.equal(process.posterior_logits(logits, x_t, 1.0), logits)
    assert torch.equal(process.posterior_weights(logits.exp(), x_t, 1.0), logits.exp())
    at_zero = process.posterior_logits(logits, x_t, 0.0).softmax(-1)
    own = process.designated_mask(torch.arange(V)) == x_t[:, None]
    assert bool(at_zero.isfinite().all())
    assert float(at_zero[~own].abs().max()) == 0
    torch.testing.assert_close(at_zero.sum(-1), torch.ones(2))
    for t in (1e-12, 1e-7, 1 - 1e-7):
        loss = process.loss(logits, torch.tensor([0, 0]), x_t, f64(t))
        assert bool(loss.total.isfinite().all()), t


def test_a_prediction_that_forbids_tokens_keeps_forbidding_them():
    _, process = pair()
    logits = torch.zeros(1, V)
    logits[0, 2] = -torch.inf
    for t in (0.0, 0.5, 1.0):
        assert float(process.posterior_logits(logits, torch.tensor([V + 2]), t)[0, 2]) == -torch.inf


def test_visible_positions_have_no_mask_to_read():
    _, process = pair()
    logits, x_t = random_prediction(V, V), torch.arange(V)
    assert torch.equal(process.posterior_logits(logits, x_t, 0.3), logits)
    log_probs = logits.clone().requires_grad_()
    loss = process.loss(log_probs.log_softmax(-1), x_t, x_t, f64(0.0)).total.sum()
    (gradient,) = torch.autograd.grad(loss, log_probs)
    assert float(loss.detach()) == 0
    assert float(gradient.abs().max()) == 0


@given(t=st.floats(1e-5, 1 - 1e-5), seed=st.integers(0, 50))
def test_the_fused_loss_is_the_loss_of_the_joined_prediction(t, seed):
    """Value and gradient: the group sums of the context against a table of posterior log-probabilities."""
    plain, process = pair()
    generator = torch.Generator().manual_seed(seed)
    x_0 = torch.randint(0, V, (9,), generator=generator)
    x_t = V + torch.randint(0, 3, (9,), generator=generator)
    logits = random_prediction(9, V, seed=seed).requires_grad_()
    fused = process.loss(logits.log_softmax(-1), x_0, x_t, f64(t))
    joined = (logits.log_softmax(-1) + evidence(process, x_t, f64(t)).log()).log_softmax(-1)
    brute = plain.loss(joined, x_0, x_t, f64(t))
    torch.testing.assert_close(fused.reconstruction, brute.reconstruction, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(fused.identification, brute.identification, rtol=1e-9, atol=1e-12)
    weights = t * torch.linspace(0.5, 2.0, 9, dtype=torch.float64)
    gradients = [torch.autograd.grad((terms.total * weights).sum(), logits)[0] for terms in (fused, brute)]
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-9)


class Twice(MultiMask):
    """A mutant: the evidence joins twice."""

    def posterior_logits(self, logits, x_t, t):
        return super().posterior_logits(super().posterior_logits(logits, x_t, t), x_t, t)


def test_evidence_that_joins_twice_is_no_posterior():
    process = Twice(V, 3, Schedule(0.8), readout="context")
    x_t, context = torch.arange(V, V + 3), random_prediction(3, V)
    found = process.posterior_logits(context, x_t, f64(0.5)).softmax(-1)
    assert float((found - bayes(process, context.exp(), x_t, f64(0.5))).abs().max()) > 0.05


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_papers_reading_and_one_mask_are_untouched_to_the_last_bit(dtype):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, V, generator=generator, dtype=torch.float64).to(dtype)
    t = torch.rand(6, generator=generator, dtype=torch.float64)
    x_0 = torch.randint(0, V, (6,), generator=generator)
    plain, _ = pair()
    one, read = (MultiMask(V, 1, readout=readout) for readout in ("posterior", "context"))
    assert read.readout == "posterior"
    for process in (plain, one, read):
        x_t = process.corrupt(x_0, t, generator)
        assert process.posterior_logits(logits, x_t, t) is logits
        assert process.posterior_weights(logits, x_t, t) is logits
    x_t = one.corrupt(x_0, t, generator)
    log_probs = logits.log_softmax(-1)
    assert torch.equal(read.loss(log_probs, x_0, x_t, t).total, one.loss(log_probs, x_0, x_t, t).total)


def test_times_may_differ_by_position():
    _, process = pair()
    x_t = torch.tensor([[V, V + 1, 1], [V + 2, V, V + 1]])
    t = torch.linspace(0.1, 0.9, 6, dtype=torch.float64).view(2, 3)
    logits = random_prediction(2, 3, V)
    whole, by_sequence = process.posterior_logits(logits, x_t, t), process.posterior_logits(logits, x_t, t[:, 0])
    for row in range(2):
        torch.testing.assert_close(by_sequence[row], process.posterior_logits(logits[row], x_t[row], t[row, 0]))
        for place in range(3):
            alone = process.posterior_logits(logits[row, place], x_t[row, place], t[row, place])
            torch.testing.assert_close(whole[row, place], alone)


def test_it_is_named_where_it_differs_and_refused_where_noise_is_tied():
    plain, process = pair()
    assert "readout" not in repr(plain)
    assert "readout='context'" in repr(process)
    tied = process.tied(noise_shown=True)
    assert (tied.readout, tied.tied_noise) == ("posterior", True)
    with pytest.raises(ValueError, match="readout must be posterior where noise is tied"):
        MultiMask(V, 3, tied_noise=True, readout="context")


@pytest.mark.unchecked
def test_an_unknown_readout_is_refused():
    with pytest.raises(ValueError, match="readout must be one of posterior, context; got 'prior'"):
        MultiMask(V, 3, readout="prior")  # pyright: ignore[reportArgumentType]
