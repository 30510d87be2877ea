import hashlib
import json
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from multimdm.data.manifest import FORMAT_VERSION, Counts, Manifest
from multimdm.data.options import PrepareOptions
from multimdm.data.packing import Sequences
from multimdm.data.prepared import PreparedData
from multimdm.data.preparing import prepare
from multimdm.data.storage import SequenceWriter
from multimdm.data.tokenizer import Tokenizer
from multimdm.data.trained_tokenizers import train_chars

TOKENIZER = train_chars(["abcdef"])


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"document {i}\n" for i in range(40)), encoding="utf-8")
    prepare(PrepareOptions(sources=(str(tmp_path / "a.txt"),), tokenizer="chars", length=16), tmp_path / "out")
    return tmp_path / "out"


@given(st.data())
def test_what_is_written_is_read(tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("prepared")
    N, L, V = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 7)), TOKENIZER.vocab_size
    generator = np.random.default_rng(data.draw(st.integers(0, 1000)))
    ids = generator.integers(0, V, (N, L))
    lengths = generator.integers(0, L + 1, N)
    cut = data.draw(st.integers(0, N))
    with SequenceWriter(directory, L, V) as writer:
        writer.write(Sequences(ids[:cut], lengths[:cut]))
        writer.write(Sequences(ids[cut:], lengths[cut:]))
        digest = writer.finish()
    TOKENIZER.save(directory)
    counts = Counts(documents=N, sequences=N, tokens=int(lengths.sum()), truncated=0, dropped=0, unknown=0)
    Manifest(
        format_version=FORMAT_VERSION,
        split=None,
        layout="padded",
        ends="none",
        length=L,
        dtype=writer.dtype_name,
        vocab_size=V,
        tokenizer="chars",
        tokenizer_fingerprint=TOKENIZER.fingerprint,
        tokenizer_files_sha256=None,
        tokens_sha256=digest,
        counts=counts,
        sources=[],
        options={},
    ).write(directory)
    prepared = PreparedData.open(directory)
    assert len(prepared) == N
    assert prepared.manifest == Manifest.read(directory)
    valid = np.arange(L) < lengths[:, None]
    assert (prepared.counts == np.bincount(ids[valid], minlength=V)).all()
    for i in range(N):
        assert prepared[i].ids.tolist() == ids[i].tolist()
        assert prepared[i].valid.tolist() == valid[i].tolist()
    assert (prepared[:].ids.numpy() == ids).all()
    assert (prepared[[0, N - 1]].valid.numpy() == valid[[0, N - 1]]).all()
    assert [d.tolist() for d in prepared.documents()] == [row[:n].tolist() for row, n in zip(ids, lengths, strict=True)]
    assert hashlib.sha256((directory / "tokens.bin").read_bytes()).hexdigest() == digest


def test_large_vocabularies_take_four_bytes(tmp_path):
    with SequenceWriter(tmp_path, 2, 70_000) as writer:
        writer.write(Sequences(np.array([[69_999, 1]]), np.array([2])))
    assert np.fromfile(tmp_path / "tokens.bin", "<u4").tolist() == [69_999, 1]


def test_in_a_data_loader(directory):
    data = PreparedData.open(directory)
    batch = next(iter(torch.utils.data.DataLoader(data, batch_size=3)))
    assert batch.ids.shape == batch.valid.shape == (3, 16)
    assert batch.ids.dtype == torch.int64
    assert batch.valid.dtype == torch.bool
    copy = pickle.loads(pickle.dumps(data))
    assert len(pickle.dumps(data)) < 1000
    assert (copy.tokens == data.tokens).all()


def test_tokenizer(directory):
    data = PreparedData.open(directory)
    tokenizer = data.tokenizer()
    data.check_tokenizer(tokenizer)
    with pytest.raises(ValueError, match=r"was prepared with tokenizer 'chars' .*, not with 'chars' \(10 tokens"):
        data.check_tokenizer(TOKENIZER)
    assert [tokenizer.decode(ids) for ids in data.documents()] == [f"document {i}" for i in range(40)]


@pytest.mark.parametrize("name", ["tokens.bin", "lengths.bin", "counts.bin"])
def test_damaged_files(name, directory):
    size = (directory / name).stat().st_size
    with open(directory / name, "ab") as file:
        file.write(b"x")
    with pytest.raises(ValueError, match=f"{name} has {size + 1:,} bytes, but the manifest says {size:,}; prepare"):
        PreparedData.open(directory)
    (directory / name).unlink()
    with pytest.raises(ValueError, match=f"{name} is missing"):
        PreparedData.open(directory)


def test_another_tokenizer_in_the_directory(directory):
    TOKENIZER.save(directory)
    with pytest.raises(ValueError, match="its tokenizer files are not those the data were made with"):
        PreparedData.open(directory)
    (directory / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match=r"tokenizer\.json is missing"):
        PreparedData.open(directory)


def test_bad_manifests(directory, tmp_path):
    with pytest.raises(ValueError, match="there is no such directory; make it with multimdm prepare"):
        PreparedData.open(tmp_path / "none")
    with pytest.raises(ValueError, match="holds no prepared data"):
        PreparedData.open(tmp_path)
    path = directory / "manifest.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(values | {"extra": 1}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"manifest\.json: field 'extra'"):
        PreparedData.open(directory)
    path.write_text(json.dumps(values | {"length": "long"}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"manifest\.json: field 'length'"):
        PreparedData.open(directory)
    path.write_text(json.dumps(values | {"format_version": 99}), encoding="utf-8")
    with pytest.raises(ValueError, match="format version 99, but this program reads version 1"):
        PreparedData.open(directory)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"manifest\.json is not JSON"):
        PreparedData.open(directory)


def test_a_directory_of_splits(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
    options = PrepareOptions(sources=(str(tmp_path / "a.txt"),), tokenizer="chars", length=8, valid_last=1)
    prepare(options, tmp_path / "out")
    with pytest.raises(ValueError, match=r"holds the splits train and valid; open .*train or .*valid"):
        PreparedData.open(tmp_path / "out")
    assert Tokenizer.load(tmp_path / "out" / "train").fingerprint == Tokenizer.load(tmp_path / "out/valid").fingerprint
