import math

import pytest
import torch

from multimdm.evaluation.sample_statistics import distinct, repeated, unigram_entropy


def test_entropy_by_hand():
    ids = torch.tensor([[5, 5, 7, 9], [2, 2, 2, 2], [1, 2, 3, 4], [9, 5, 7, 5]])
    half_and_quarters = 0.5 * math.log(2) + 2 * 0.25 * math.log(4)
    expected = torch.tensor([half_and_quarters, 0.0, math.log(4), half_and_quarters], dtype=torch.float64)
    torch.testing.assert_close(unigram_entropy(ids), expected)


def test_entropy_leaves_padding_out():
    ids = torch.tensor([[5, 0, 0, 5, 0], [1, 2, 0, 0, 0]])
    valid = torch.tensor([[True, True, False, True, False], [True, True, False, False, False]])
    two_to_one = math.log(3) - 2 / 3 * math.log(2)
    torch.testing.assert_close(unigram_entropy(ids, valid), torch.tensor([two_to_one, math.log(2)]).double())


def test_entropy_equals_a_count_of_tokens():
    ids = torch.randint(0, 30, (20, 64), generator=torch.Generator().manual_seed(0))
    for row, value in zip(ids, unigram_entropy(ids), strict=True):
        shares = torch.bincount(row).double() / 64
        assert float(value) == pytest.approx(float(torch.special.entr(shares).sum()))


def test_distinct_without_padding():
    ids = torch.tensor([[5, 6, 5, 6, 0, 0], [7, 0, 0, 0, 0, 0], [0, 8, 8, 0, 9, 0]])
    assert distinct(ids, 1, ids > 0).tolist() == pytest.approx([2 / 4, 1.0, 2 / 3])
    assert distinct(ids, 2, ids > 0).tolist() == pytest.approx([2 / 3, 0.0, 1.0])


def test_distinct_by_hand():
    ids = torch.tensor([[1, 2, 1, 2, 1], [1, 1, 1, 1, 1], [1, 2, 3, 4, 5]])
    assert distinct(ids, 1).tolist() == pytest.approx([2 / 5, 1 / 5, 1.0])
    assert distinct(ids, 2).tolist() == pytest.approx([2 / 4, 1 / 4, 1.0])
    assert distinct(ids, 3).tolist() == pytest.approx([2 / 3, 1 / 3, 1.0])
    assert distinct(ids, 6).tolist() == [0.0, 0.0, 0.0]


def test_repeated_samples_are_found():
    ids = torch.tensor([[1, 2], [2, 1], [1, 2], [3, 3], [1, 2]])
    assert repeated(ids).tolist() == [True, False, True, False, True]
