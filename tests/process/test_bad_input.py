"""Wrong arguments get a ValueError that names the argument, its value and what is allowed."""

# pyright: reportArgumentType=false

import pytest
import torch

from multimdm.process import (
    MultiMask,
    Schedule,
    Uniform,
    advise_masks,
    clustered,
    debug_checks,
    frequency_balanced,
    modulo,
    random_balanced,
)
from support.designated_entry import DesignatedEntry

pytestmark = pytest.mark.unchecked

P, U = MultiMask(6, 3), Uniform(6)
X = torch.tensor([0, 1])
ROWS = torch.full((2, 6), 1 / 6)

CASES = {
    "V too small": (lambda: MultiMask(1, 1), "vocab_size must be at least 2; got 1"),
    "V not an integer": (lambda: MultiMask(6.0, 1), "vocab_size must be an integer.*6.0"),
    "no masks": (lambda: MultiMask(6, 0), "num_masks must be at least 1; got 0"),
    "more masks than tokens": (lambda: MultiMask(6, 7), "num_masks must be at most vocab_size, 6.*got 7"),
    "uniform V": (lambda: Uniform(1), "vocab_size must be at least 2; got 1"),
    "rho": (lambda: Schedule(rho=0.0), "rho must be a finite number above 0; got 0.0"),
    "kind": (lambda: Schedule(kind="cubic"), "kind must be 'linear' or 'cosine'; got 'cubic'"),
    "assignment too short": (
        lambda: MultiMask(6, 3, assignment=torch.tensor([0, 1, 2])),
        r"assignment must have shape \[6\].*got \[3\]",
    ),
    "mask out of range": (
        lambda: MultiMask(6, 3, assignment=torch.tensor([0, 1, 2, 3, 0, 1])),
        "mask indices from 0 to 2; it holds 0 to 3",
    ),
    "unused mask": (
        lambda: MultiMask(6, 3, assignment=torch.tensor([0, 2, 2, 0, 0, 2])),
        "assignment must use every mask; mask 1 of 3 has no token",
    ),
    "assignment of floats": (lambda: MultiMask(6, 3, assignment=torch.zeros(6)), "assignment must be an integer"),
    "t above one": (lambda: P.marginal(X, 1.5), r"t must lie in \[0, 1\].*got 1.5"),
    "t below zero": (lambda: P.corrupt(X, -0.1), r"t must lie in \[0, 1\].*got -0.1"),
    "t not a number": (lambda: U.corrupt(X, float("nan")), r"t must lie in \[0, 1\].*got nan"),
    "t of integers": (lambda: P.corrupt(X, torch.tensor(1)), "t must be a number or a floating-point tensor"),
    "t of another shape": (lambda: P.corrupt(X, torch.rand(3)), r"begins the shape of the ids, \[2\]; got \[3\]"),
    "s equal to t": (lambda: P.posterior(X, X, 0.5, 0.5), "s must be earlier than t; got s = 0.5 and t = 0.5"),
    "s after t": (lambda: U.transition(X, 0.7, 0.5), "s must be earlier than t; got s = 0.7 and t = 0.5"),
    "x_0 of floats": (lambda: P.marginal(X.float(), 0.5), "x_0 must be an integer tensor.*float32"),
    "x_0 a list": (lambda: P.marginal([0, 1], 0.5), "x_0 must be an integer tensor.*list"),
    "x_t of another shape": (
        lambda: P.posterior(X, torch.tensor([0]), 0.1, 0.5),
        r"x_0 and x_t must have the same shape; got \[2\] and \[1\]",
    ),
    "prediction of another width": (
        lambda: P.reverse(ROWS[:, :5], X, 0.1, 0.5),
        r"clean_probs must have shape \[2, 6\].*got \[2, 5\]",
    ),
    "prediction of integers": (lambda: P.loss(ROWS.long(), X, X, 0.5), "log_probs must be a floating-point tensor"),
    "one time to couple": (lambda: P.couple(X, torch.tensor(0.5)), "times must be a list of times"),
    "a bad time to couple": (lambda: P.couple(X, [0.1, 1.2]), r"times\[1\] must lie in \[0, 1\].*1.2"),
    "times of another shape": (lambda: P.couple(X, torch.rand(2, 3)), r"times must have shape.*got \[2, 3\]"),
    "noise of masks": (lambda: P.couple(X, [0.5], noise="gaussian"), "noise must be 'gumbel' for a masked process"),
    "noise": (lambda: U.couple(X, [0.5], noise="cauchy"), "noise must be 'gumbel' or 'gaussian'; got 'cauchy'"),
    "an assignment for a schedule": (
        lambda: MultiMask(6, 3, modulo(6, 3)),
        "schedule must be a Schedule; got torch.int64",
    ),
    "a number for a schedule": (lambda: Uniform(6, 0.5), "schedule must be a Schedule; got float"),
    "a seed for a generator": (
        lambda: P.corrupt(X, 0.5, 0),
        "generator must be None, a torch.Generator or Streams; got 0",
    ),
    "noise of another kind": (lambda: P.path(X, U.noise((2,), noise="gaussian"), 0.5), "noise must be a GumbelNoise"),
    "noise of another shape": (
        lambda: P.path(X, P.noise((5, 2)), 0.5),
        r"x_0 and noise must have the same shape; got \[2\] and \[5, 2\]",
    ),
    "small integers": (lambda: P.active(X.byte()), "x_t must be an integer tensor of token ids, int64 or int32"),
    "another process": (lambda: DesignatedEntry(U), "process must be a MultiMask; got Uniform"),
    "modulo": (lambda: modulo(3, 4), "num_masks must be at most vocab_size, 3"),
    "random": (lambda: random_balanced(3, 0), "num_masks must be at least 1; got 0"),
    "negative counts": (lambda: frequency_balanced([1.0, -2.0], 2), "counts must be finite and not negative.*-2.0"),
    "embeddings": (lambda: clustered(torch.zeros(4), 2), r"embeddings must be a finite matrix.*\[4\]"),
    "advice": (lambda: advise_masks(0, 5), "num_sequences must be at least 1; got 0"),
}


@pytest.mark.parametrize(("call", "message"), CASES.values(), ids=CASES)
def test_message(call, message):
    with pytest.raises(ValueError, match=message):
        call()


CONTENTS = {
    "ids": (lambda: P.marginal(torch.tensor([0, 6]), 0.5), "x_0 must hold ids from 0 to 5; it holds ids from 0 to 6"),
    "states": (lambda: P.transition(torch.tensor([9]), 0.1, 0.5), "x_s must hold ids from 0 to 8"),
    "times": (lambda: P.corrupt(X, torch.tensor([0.5, 1.5])), r"t must lie in \[0, 1\]; it holds values.*1.5"),
    "order": (lambda: P.transition(X, torch.tensor([0.1, 0.6]), 0.5), "s must be earlier than t"),
    "logits for log-probabilities": (lambda: P.loss(ROWS, X, X, 0.5), "log_probs must be normalised"),
    "negative probabilities": (lambda: U.reverse(-ROWS, X, 0.1, 0.5), "clean_probs must be finite and not negative"),
    "visible tokens that differ": (
        lambda: P.posterior(X, X.flip(0), 0.1, 0.5),
        "x_t must equal x_0 wherever.*2 positions",
    ),
}


@pytest.mark.parametrize(("call", "message"), CONTENTS.values(), ids=CONTENTS)
def test_contents_are_checked_on_request(call, message):
    with debug_checks(), pytest.raises(ValueError, match=message):
        call()


def test_the_switch_switches_back():
    with debug_checks():
        pass
    P.posterior(X, X.flip(0), 0.1, 0.5)  # impossible states, not looked at
