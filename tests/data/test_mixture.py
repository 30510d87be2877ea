import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multimdm.data.encoding import Encoded
from multimdm.data.mixture import interleave, parse_weight

documents = st.lists(st.integers(1, 9), min_size=1, max_size=40)


def source(number, lengths, per_batch=7):
    """Documents made of the source's number."""

    def start():
        for first in range(0, len(lengths), per_batch):
            part = np.array(lengths[first : first + per_batch])
            yield Encoded(np.full(part.sum(), number), part)

    return start


def drawn(starts, weights, **options):
    """(source, length) of each document in order."""
    result = []
    for batch in interleave(starts, weights, **options):
        for ids in np.split(batch.ids, batch.lengths.cumsum()[:-1]):
            assert len(set(ids.tolist())) == 1
            result.append((int(ids[0]), len(ids)))
    return result


@given(st.lists(st.tuples(documents, st.floats(0.1, 10)), min_size=1, max_size=4))
def test_every_prefix_meets_the_weights_within_one_document(sources):
    lengths, weights = zip(*sources, strict=True)
    order = drawn([source(i, n) for i, n in enumerate(lengths)], weights)
    share = np.array(weights) / sum(weights)
    tokens = np.zeros(len(weights))
    longest = np.array([max(n) + 1 for n in lengths])
    for number, length in order:
        tokens[number] += length + 1  # the EOS behind it counts, too
        # No source is ahead of another by more than its last document.
        assert (tokens / share).max() - (tokens / share).min() <= (longest / share).max() + 1e-9
        assert (np.abs(tokens - share * tokens.sum()) <= max(longest / share) * share + 1e-9).all()


@given(st.lists(documents, min_size=1, max_size=4))
def test_documents_keep_their_order_and_the_mixture_ends_with_the_first_source(lengths):
    order = drawn([source(i, n) for i, n in enumerate(lengths)], [1.0] * len(lengths))
    for i, expected in enumerate(lengths):
        seen = [length for number, length in order if number == i]
        assert seen == expected[: len(seen)]
    assert any(sum(number == i for number, _ in order) == len(n) for i, n in enumerate(lengths))


def test_shares_are_of_tokens_not_of_documents():
    order = drawn([source(0, [100] * 50), source(1, [1] * 5000)], [0.7, 0.3])
    # With the EOS that each document costs: what is written.
    tokens = [sum(length + 1 for number, length in order if number == i) for i in (0, 1)]
    assert tokens[0] == 5050
    assert abs(tokens[0] / sum(tokens) - 0.7) < 0.01


def test_repeat_reads_every_source_to_its_end():
    order = drawn([source(0, [1] * 10), source(1, [1] * 100)], [1.0, 1.0], repeat=True)
    assert sum(number == 1 for number, _ in order) == 100
    assert abs(sum(number == 0 for number, _ in order) - 100) <= 1


def test_what_is_cut_does_not_count():
    order = drawn([source(0, [1000] * 30), source(1, [10] * 30)], [1.0, 1.0], limit=10)
    assert abs(sum(number == 0 for number, _ in order) - sum(number == 1 for number, _ in order)) <= 1


def test_weights():
    assert parse_weight("0.7:a.txt") == (0.7, "a.txt")
    assert parse_weight("3:hf:org/name:config") == (3.0, "hf:org/name:config")


@pytest.mark.parametrize("text", ["a.txt", "0:a.txt", "-1:a.txt", "inf:a", "nan:a", "1:", "x:a.txt"])
def test_bad_weights(text):
    with pytest.raises(ValueError, match=f"--mix {text}: expected WEIGHT:SOURCE"):
        parse_weight(text)
