"""Sequences are named by their number in the run: order, epochs and splits need no memory."""

import pytest
import torch

from multimdm.data import Tales
from multimdm.data.options import PrepareOptions
from multimdm.data.preparing import prepare
from multimdm.training.settings import DataSettings
from multimdm.training.sources import open_source


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "text.txt").write_text("".join(f"line number {i} says {i * i}\n" for i in range(60)))
    options = PrepareOptions(
        sources=(str(folder / "text.txt"),), tokenizer="chars", length=32, layout="padded", valid_fraction=0.2
    )
    prepare(options, folder / "data", False, lambda state: None)
    return folder / "data"


def test_every_epoch_has_every_sequence_once_in_a_new_order(prepared):
    source = open_source(DataSettings(kind="prepared", path=str(prepared)), seed=0)
    size = 48
    epochs = [source.train(start, size).ids for start in (0, size, 2 * size)]
    assert not torch.equal(epochs[0], epochs[1])
    rows = [sorted(map(tuple, epoch.tolist())) for epoch in epochs]
    assert rows[0] == rows[1] == rows[2]
    assert len(set(rows[0])) == size


def test_numbers_name_sequences_whatever_was_read_before(prepared):
    settings = DataSettings(kind="prepared", path=str(prepared))
    one, other = open_source(settings, seed=0), open_source(settings, seed=0)
    one.train(0, 10)
    straddling = one.train(40, 20)  # over the end of an epoch
    pieces = [other.train(50, 10), other.train(40, 10)]
    assert torch.equal(straddling.ids, torch.cat([pieces[1].ids, pieces[0].ids]))
    assert not torch.equal(open_source(settings, seed=1).train(40, 20).ids, straddling.ids)


def test_the_validation_split_is_found(prepared):
    source = open_source(DataSettings(kind="prepared", path=str(prepared)), seed=0)
    assert source.valid_size == 12
    training = set(map(tuple, source.train(0, 48).ids.tolist()))
    assert not training & set(map(tuple, source.valid(0, 12).ids.tolist()))
    alone = open_source(DataSettings(kind="prepared", path=str(prepared / "train")), seed=0)
    assert alone.valid_size == 0
    given = DataSettings(kind="prepared", path=str(prepared / "train"), valid=str(prepared / "valid"))
    assert open_source(given, seed=0).valid_size == 12
    hidden = open_source(DataSettings(kind="prepared", path=str(prepared), learn_padding=False), seed=0)
    assert int(source.counts().sum()) == int(hidden.train(0, 48).valid.sum())


def test_padding_is_learnt_in_padded_layouts(prepared):
    """Hidden padding would tell the network how long a text is, which sampling does not know."""
    path = str(prepared)
    learnt = open_source(DataSettings(kind="prepared", path=path), seed=0)
    hidden = open_source(DataSettings(kind="prepared", path=path, learn_padding=False), seed=0)
    assert bool(learnt.train(0, 48).valid.all())
    assert bool(learnt.valid(0, 12).valid.all())
    assert not bool(hidden.train(0, 48).valid.all())
    assert torch.equal(learnt.train(0, 48).ids, hidden.train(0, 48).ids)
    assert learnt.fingerprint == hidden.fingerprint != open_source(DataSettings(), 0).fingerprint


def test_a_validation_set_of_another_length_is_refused(prepared, tmp_path):
    (tmp_path / "other.txt").write_text("line number 1 says 5\n" * 3)
    options = PrepareOptions(
        sources=(str(tmp_path / "other.txt"),), tokenizer=str(prepared / "train"), length=16, layout="padded"
    )
    prepare(options, tmp_path / "short", False, lambda state: None)
    settings = DataSettings(kind="prepared", path=str(prepared), valid=str(tmp_path / "short"))
    with pytest.raises(ValueError, match=r"sequences of 16 tokens and .* of 32|tokenizer"):
        open_source(settings, seed=0)


def test_tales_never_repeat_and_are_validated_on_their_own(tmp_path):
    one, other = (open_source(DataSettings(kind="tales"), seed) for seed in (0, 1))
    stories = one.train(0, 200).ids
    assert len(set(map(tuple, stories.tolist()))) > 195
    assert torch.equal(one.train(100, 100).ids, stories[100:])
    assert not torch.equal(other.train(0, 200).ids, stories)
    assert torch.equal(one.valid(0, 50).ids, other.valid(0, 50).ids)
    assert not torch.equal(one.valid(0, 50).ids, stories[:50])
    assert bool(Tales().valid(stories).all())
    assert one.entropy == pytest.approx(1.0359, abs=1e-4)


def test_a_missing_directory(tmp_path):
    with pytest.raises(ValueError, match=str(tmp_path / "nowhere")):
        open_source(DataSettings(kind="prepared", path=str(tmp_path / "nowhere")), seed=0)
