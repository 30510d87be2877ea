import numpy as np
from hypothesis import given
from hypothesis import strategies as st

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
    assert len(valid) == int(np.floor(sum(sizes) * fraction))


@given(batch_sizes, st.integers(1, 30))
def test_take(sizes, limit):
    assert numbers(take(stream(sizes), limit)) == list(range(min(limit, sum(sizes))))
