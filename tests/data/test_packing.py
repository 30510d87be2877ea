import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multimdm.data import packing
from multimdm.data.encoding import Encoded
from multimdm.data.packing import Frame, Packed, Padded
from multimdm.data.trained_tokenizers import train_chars

BOS, EOS, PAD = 1, 2, 0
documents = st.lists(st.lists(st.integers(3, 99), min_size=1, max_size=12), max_size=12)


def flat(texts) -> list[int]:
    return [token for text in texts for token in text]


def encoded(texts) -> Encoded:
    return Encoded(np.array(flat(texts), dtype=np.uint16), np.array([len(t) for t in texts], dtype=np.int64))


def frame(length, ends="both") -> Frame:
    bos, eos = (BOS if ends in ("both", "bos") else None), (EOS if ends in ("both", "eos") else None)
    return Frame(length, bos, eos, PAD, np.dtype("<u2"))


def rows(layout, batches) -> list[list[int]]:
    """The valid part of each sequence; what follows must be padding."""
    blocks = [block for batch in batches for block in layout.add(encoded(batch))] + list(layout.finish())
    result = []
    for ids, lengths, _ in blocks:
        assert ids.dtype == np.uint16
        assert ids.shape == (len(lengths), layout.frame.length)
        for row, n in zip(ids.tolist(), lengths.tolist(), strict=True):
            assert row[n:] == [PAD] * (layout.frame.length - n)
            result.append(row[:n])
    return result


def test_the_convention_of_the_field():
    assert rows(Packed(frame(6), EOS), [[[10, 11, 12], [13]], [[14, 15]]]) == [
        [BOS, 10, 11, 12, EOS, EOS],
        [BOS, 13, EOS, 14, 15, EOS],
        [BOS, EOS, EOS],
    ]


@given(st.lists(documents, max_size=4), st.integers(3, 20), st.sampled_from(["both", "bos", "eos", "none"]))
def test_packing_loses_no_token(batches, length, ends):
    layout = Packed(frame(length, ends), EOS)
    before, after = int(ends in ("both", "bos")), int(ends in ("both", "eos"))
    stream = []
    packed = rows(layout, batches)
    for row in packed:
        assert row[:before] == [BOS] * before
        assert row[len(row) - after :] == [EOS] * after
        stream += row[before : len(row) - after]
    assert all(len(row) == length for row in packed[:-1])
    assert stream == [token for batch in batches for text in batch for token in [*text, EOS]]
    assert layout.dropped == 0


@given(documents, st.integers(3, 20))
def test_drop_last_leaves_full_sequences_and_counts_the_rest(texts, length):
    layout = Packed(frame(length), EOS, drop_last=True)
    kept = rows(layout, [texts])
    assert all(len(row) == length for row in kept)
    assert len(kept) * (length - 2) + layout.dropped == sum(len(text) + 1 for text in texts)


@given(documents, st.integers(3, 20), st.sampled_from(["both", "bos", "eos", "none"]))
def test_padded(texts, length, ends):
    layout = Padded(frame(length, ends))
    room = layout.frame.room
    bos, eos = [BOS] * (ends in ("both", "bos")), [EOS] * (ends in ("both", "eos"))
    assert rows(layout, [texts]) == [[*bos, *text[:room], *eos] for text in texts]
    assert layout.truncated == sum(len(text) > room for text in texts)
    assert layout.dropped == sum(max(0, len(text) - room) for text in texts)


@pytest.mark.parametrize("make", [lambda: Packed(frame(7), EOS), lambda: Padded(frame(7))])
def test_blocks_change_nothing(make, monkeypatch):
    texts = [[3 + i] * (1 + i % 11) for i in range(50)]
    whole = rows(make(), [texts])
    monkeypatch.setattr(packing, "_BLOCK", 16)
    assert rows(make(), [texts[:20], [], texts[20:]]) == whole


def test_frame_of_a_tokenizer():
    tokenizer = train_chars(["ab"])
    made = Frame.of(tokenizer, 8, "eos", np.dtype("<u2"))
    assert (made.bos, made.eos, made.fill) == (None, tokenizer.eos_id, tokenizer.pad_id)
    assert made.room == 7


@given(documents, st.data())
def test_parts_of_encoded_documents(texts, data):
    batch = encoded(texts)
    start = data.draw(st.integers(0, len(texts)))
    stop = data.draw(st.integers(start, len(texts)))
    part = batch[start:stop]
    assert part.ids.tolist() == flat(texts[start:stop])
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts))), dtype=bool)
    assert batch.where(chosen).ids.tolist() == flat(t for t, c in zip(texts, chosen, strict=True) if c)
