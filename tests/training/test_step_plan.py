"""The global batch is divided without gaps or overlaps, whatever the ranks and the accumulation."""

import pytest

from multimdm.training.step_plan import Parts


@pytest.mark.parametrize(("ranks", "micro"), [(1, None), (1, 4), (2, None), (2, 3), (4, 1), (12, None), (3, 100)])
def test_every_sequence_once(ranks, micro):
    taken = [i for rank in range(ranks) for part in Parts(12, micro, rank, ranks) for i in part]
    assert taken == list(range(12))


@pytest.mark.parametrize(("ranks", "micro"), [(1, None), (2, 3), (4, 1), (3, None)])
@pytest.mark.parametrize("num", [4, 5, 13, 24])
def test_other_numbers_of_sequences_are_shared_out(num, ranks, micro):
    """Every sequence counts once, and all ranks run equally often."""
    shares = [list(Parts(12, micro, rank, ranks).of(num)) for rank in range(ranks)]
    counted = [i for share in shares for part, counts in share if counts for i in part]
    assert sorted(counted) == list(range(num))
    assert len({len(share) for share in shares}) == 1
    assert all(len(part) > 0 for share in shares for part, _ in share)


def test_bad_divisions():
    with pytest.raises(ValueError, match="multiple of the number of ranks, 5; got 12"):
        Parts(12, None, 0, 5)
    with pytest.raises(ValueError, match=r"must divide the 12 sequences of a rank .* got 5"):
        Parts(12, 5, 0, 1)
