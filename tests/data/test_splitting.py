import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from multimdm.data.encoding import Encoded
from multimdm.data.splitting import hold_out_fraction, hold_out_last, take

# Document i is the number i, i % 3 + 1 times.
batch_sizes = st.lists(st.integers(0, 9), max_size=6)


def stream(sizes):
    first = 0
    for size in sizes:
        index = np.arange(first, first + size)
        yield Encoded(np.repeat(index, index % 3 + 1), index % 3 + 1)
        first += size


def numbers(batches) -> list[int]:
    result = []
    for batch in batches:
        if batch is not None and len(batch):
            result += [int(ids[0]) for ids in np.split(batch.ids, batch.lengths.cumsum()[:-1])]
    return result


@given(batch_sizes, st.integers(1, 30))
def test_last(sizes, held_out):
    splits = list(hold_out_last(stream(sizes), held_out))
    edge = max(0, sum(sizes) - held_out)
    assert numbers(s.train for s in splits) == list(range(edge))
    assert numbers(s.valid for s in splits) == list(range(edge, sum(sizes)))


@given(batch_sizes, st.floats(0.01, 0.99))
def test_fraction(sizes, fraction):
    splits = list(hold_out_fraction(stream(sizes), fraction))
    train, valid = numbers(s.train for s in splits), numbers(s.valid for s in splits)
    assert sorted(train + valid) == list(range(sum(sizes)))
    assert valid == numbers(s.valid for s in hold_out_fraction(stream([sum(sizes)]), fraction))  # whatever the batches
    together = np.ceil(1 / fraction)
    assert abs(len(valid) - sum(sizes) * fraction) <= together  # of whole runs, exactly their share


@given(st.integers(0, 300), st.integers(2, 20))
def test_one_in_so_many(documents, many):
    """Of every so many documents in a row one is held out, not the same in all rows."""
    valid = numbers(s.valid for s in hold_out_fraction(stream([documents]), 1 / many))
    full = documents // many
    assert [i // many for i in valid][:full] == list(range(full))
    assert len(valid) <= full + 1


@pytest.mark.parametrize("fraction", [1e-7, 0.003, 0.15, 0.3, 0.5, 0.8, 0.95])
def test_the_share_is_what_is_asked_for(fraction):
    valid = numbers(s.valid for s in hold_out_fraction(stream([1000] * 60), fraction))
    assert abs(len(valid) - 60_000 * fraction) <= 2


def test_a_fraction_does_not_meet_the_rhythm_of_a_corpus():
    """Texts that go from short to long again and again: all lengths are held out alike, by chi-square."""
    rhythm, held_out = 10, 4000
    index = numbers(s.valid for s in hold_out_fraction(stream([1000] * (held_out // 20)), 0.02))
    assert len(index) == held_out
    counts = np.bincount(np.array(index) % rhythm, minlength=rhythm)
    assert chisquare(counts).pvalue > 1e-4
    fixed_places = np.bincount(np.arange(49, 50 * held_out, 50) % rhythm, minlength=rhythm)
    assert chisquare(fixed_places).pvalue < 1e-4


@given(batch_sizes, st.integers(1, 30))
def test_take(sizes, limit):
    assert numbers(take(stream(sizes), limit)) == list(range(min(limit, sum(sizes))))
