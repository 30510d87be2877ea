"""What evidence tells of stories is exact: against lists of all strings, and against the judge."""

import pytest
import torch

from multimdm.data.tales import Tales
from multimdm.data.tales_inference import Inference
from support.tiny_stories import TINY, listed_posterior

SMALL = Tales(6, TINY)
FULL = Tales()


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def soft_evidence(num: int) -> torch.Tensor:
    """Of every degree: from nearly nothing to nearly certain."""
    shape = (num, SMALL.length, SMALL.vocab_size)
    sharpness = torch.rand((num, SMALL.length, 1), generator=generator(), dtype=torch.float64) * 8
    return torch.softmax(sharpness * torch.randn(shape, generator=generator(), dtype=torch.float64), -1)


@pytest.mark.parametrize("epsilon", [1e-3, 0.3])
def test_leave_one_out_is_that_of_all_strings(epsilon):
    evidence = soft_evidence(6)
    found = SMALL.leave_one_out(evidence, epsilon)
    expected = listed_posterior(SMALL, evidence, epsilon, leave_out=True)
    torch.testing.assert_close(found.exp(), expected.exp(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(6, SMALL.length, dtype=torch.float64))
    torch.testing.assert_close(SMALL.leave_one_out(7 * evidence, epsilon), found)  # factors say nothing


def test_known_tokens_are_a_special_case():
    ids = FULL.sample(5, generator())
    ids[1, 4:9] = 7  # impossible as a story
    evidence = torch.nn.functional.one_hot(ids, FULL.vocab_size).double()
    found = Inference(FULL._plan, 1e-3).log_sum(evidence)
    torch.testing.assert_close(found, FULL.log_prob(ids), rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("place", [11, 40])
def test_one_hidden_position_is_bayes_rule_by_the_judge(place):
    V, ids = FULL.vocab_size, FULL.sample(1, generator())
    ids[0, 20] = 3  # a contradiction elsewhere
    evidence = torch.nn.functional.one_hot(ids, V).double()
    evidence[:, place] = 1.0
    candidates = ids.repeat(V, 1)
    candidates[:, place] = torch.arange(V)
    expected = FULL.log_prob(candidates).log_softmax(0)
    torch.testing.assert_close(FULL.leave_one_out(evidence)[0, place], expected, rtol=1e-10, atol=1e-10)


def test_stories_do_not_depend_on_their_neighbours(monkeypatch):
    evidence = soft_evidence(9)
    together = SMALL.leave_one_out(evidence)
    monkeypatch.setattr("multimdm.data.tales._INFERRED", 1)  # one at a time
    torch.testing.assert_close(SMALL.leave_one_out(evidence), together, rtol=1e-12, atol=0)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"evidence must have shape \[num, 6, 7\]; got \[1, 5, 7\]"):
        SMALL.leave_one_out(torch.ones(1, 5, 7, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"epsilon must be from .* to 1; got 0"):
        SMALL.leave_one_out(torch.ones(1, 6, 7, dtype=torch.float64), 0)
