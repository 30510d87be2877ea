from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multimdm.data import encoding
from multimdm.data.options import PrepareOptions
from multimdm.data.prepared import PreparedData
from multimdm.data.preparing import Progress, prepare
from multimdm.data.tokenizer import Tokenizer
from multimdm.data.trained_tokenizers import train_chars

GPT2 = Path(__file__).resolve().parents[3] / "shared" / "data" / "tokenizers" / "gpt2"
TEXTS = [f"Story {i}: the {'very ' * (i % 7)}old cat — naïve? — sat;\ton {i * i} mats." for i in range(200)]
tokenizers = pytest.mark.parametrize(
    "tokenizer",
    [
        "chars",
        "bpe:300",
        pytest.param(
            str(GPT2), marks=pytest.mark.skipif(not GPT2.exists(), reason="the shared tokenizers are not here")
        ),
    ],
)


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(TEXTS), encoding="utf-8")
    return path


def options(*sources, **others) -> PrepareOptions:
    return PrepareOptions(**{"sources": tuple(map(str, sources)), "tokenizer": "chars", "length": 32} | others)


def texts(directory) -> list[str]:
    data = PreparedData.open(directory)
    tokenizer = data.tokenizer()
    return [tokenizer.decode(ids) for ids in data.documents()]


@tokenizers
@pytest.mark.parametrize("layout", ["packed", "padded"])
@pytest.mark.parametrize("ends", ["both", "none"])
def test_decoding_gives_the_text_back(tokenizer, layout, ends, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(encoding, "BATCH_CHARACTERS", 500)
    result = prepare(options(corpus, tokenizer=tokenizer, layout=layout, ends=ends, length=128), tmp_path / "out")
    assert texts(tmp_path / "out") == TEXTS
    data = PreparedData.open(tmp_path / "out")
    counts = data.manifest.counts
    assert not result.reused
    assert result.manifests == {"all": data.manifest}
    assert (counts.documents, counts.truncated, counts.dropped, counts.unknown) == (200, 0, 0, 0)
    assert counts.tokens == data.counts.sum() == data.lengths.sum()
    encoded = sum(map(len, data.tokenizer().encode_batch(TEXTS)))
    per_sequence = 2 if ends == "both" else 0
    separators = 200 if layout == "packed" else 0
    assert counts.tokens == encoded + separators + per_sequence * counts.sequences


documents = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0")).filter(str.strip), min_size=1)


@given(documents, st.integers(3, 40))
def test_any_text_comes_back(tmp_path_factory, documents, length):
    folder = tmp_path_factory.mktemp("any")
    (folder / "a.txt").write_bytes("\n".join(documents).encode())
    prepare(options(folder / "a.txt", length=length), folder / "out")
    assert texts(folder / "out") == [documents[0].removeprefix("\ufeff"), *documents[1:]]


def test_truncation_is_counted(corpus, tmp_path):
    prepare(options(corpus, layout="padded", length=20), tmp_path / "out")
    assert texts(tmp_path / "out") == [text[:18] for text in TEXTS]
    counts = PreparedData.open(tmp_path / "out").manifest.counts
    assert counts.truncated == 200
    assert counts.dropped == sum(len(text) - 18 for text in TEXTS)


def test_unknown_characters_are_counted(corpus, tmp_path):
    (tmp_path / "valid.txt").write_text("cat Ω cat Ω", encoding="utf-8")
    prepare(options(corpus, valid=(str(tmp_path / "valid.txt"),)), tmp_path / "out")
    assert PreparedData.open(tmp_path / "out" / "valid").manifest.counts.unknown == 2
    assert PreparedData.open(tmp_path / "out" / "train").manifest.counts.unknown == 0


def test_detokenized(tmp_path):
    (tmp_path / "a.txt").write_text("He did n't , he said .\n", encoding="utf-8")
    prepare(options(tmp_path / "a.txt", detokenize="lm1b"), tmp_path / "out")
    assert texts(tmp_path / "out") == ["He did n't, he said."]


def test_the_last_documents_are_held_out(corpus, tmp_path):
    result = prepare(options(corpus, valid_last=30), tmp_path / "out")
    assert list(result.manifests) == ["train", "valid"]
    assert texts(tmp_path / "out" / "valid") == TEXTS[-30:]
    assert texts(tmp_path / "out" / "train") == TEXTS[:-30]


def test_one_document_in_ten_is_held_out(corpus, tmp_path):
    result = prepare(options(corpus, valid_fraction=0.1), tmp_path / "out")
    assert list(result.manifests) == ["train", "valid"]
    held_out = texts(tmp_path / "out" / "valid")
    assert [TEXTS.index(text) // 10 for text in held_out] == list(range(len(TEXTS) // 10))
    assert texts(tmp_path / "out" / "train") == [text for text in TEXTS if text not in held_out]


def test_a_fraction_of_nothing_holds_nothing_out(tmp_path):
    (tmp_path / "novel.txt").write_text("all on one line", encoding="utf-8")
    result = prepare(options(tmp_path / "novel.txt", valid_fraction=0.0), tmp_path / "out")
    assert list(result.manifests) == ["all"]
    assert texts(tmp_path / "out") == ["all on one line"]


def test_valid_source_and_limit(corpus, tmp_path):
    (tmp_path / "valid.txt").write_text("the cat\n", encoding="utf-8")
    prepare(options(corpus, max_documents=3, valid=(str(tmp_path / "valid.txt"),)), tmp_path / "out")
    assert texts(tmp_path / "out" / "valid") == ["the cat"]
    assert texts(tmp_path / "out" / "train") == TEXTS[:3]


def test_mixture(tmp_path):
    (tmp_path / "a.txt").write_text("aaaaaaaaaa\n" * 300, encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"text": "bbb"}\n' * 3000, encoding="utf-8")
    mix = (f"0.7:{tmp_path / 'a.txt'}", f"0.3:{tmp_path / 'b.jsonl'}")
    prepare(options(mix=mix), tmp_path / "out")
    found = texts(tmp_path / "out")
    assert "".join(found).count("a") == 3000

    def written(letter: str) -> int:
        return sum(len(text) + 1 for text in found if letter in text)  # with the EOS of each document

    assert abs(written("a") - 0.7 * (written("a") + written("b"))) <= 11
    prepare(options(mix=mix, repeat=True), tmp_path / "all")
    found = texts(tmp_path / "all")
    assert "".join(found).count("b") == 9000
    assert abs(written("a") - 0.7 * (written("a") + written("b"))) <= 11


def test_progress(corpus, tmp_path):
    seen: list[Progress] = []
    prepare(options(corpus), tmp_path / "out", progress=seen.append)
    assert (seen[-1].stage, seen[-1].documents) == ("encoding", 200)
    assert seen[-1].bytes_read == seen[-1].bytes_total == corpus.stat().st_size


def fail(*_, **__):
    raise AssertionError("encoded again")


@pytest.mark.parametrize("split", [{}, {"valid_fraction": 0.1}])
def test_a_second_time_nothing_is_done(split, corpus, tmp_path, monkeypatch):
    made = prepare(options(corpus, tokenizer="bpe:300", **split), tmp_path / "out")
    monkeypatch.setattr(Tokenizer, "encode_batch", fail)
    corpus.touch()  # the same bytes at another time
    again = prepare(options(corpus, tokenizer="bpe:300", **split), tmp_path / "out")
    assert again.reused
    assert again.manifests == made.manifests


def test_changes_are_named_and_force_replaces(corpus, tmp_path, monkeypatch):
    out = tmp_path / "out"
    prepare(options(corpus), out)
    with pytest.raises(ValueError, match=r"prepared otherwise \(--length was 32, is 16\); choose another .*--force"):
        prepare(options(corpus, length=16), out)
    assert PreparedData.open(out).manifest.length == 32
    prepare(options(corpus, length=16), out, force=True)
    assert PreparedData.open(out).manifest.length == 16
    corpus.write_text("another", encoding="utf-8")
    with pytest.raises(ValueError, match=r"corpus\.txt has changed"):
        prepare(options(corpus, length=16), out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", "out"]


def test_files_that_come_and_go_are_changes(corpus, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.txt").write_text("a", encoding="utf-8")
    (folder / "b.txt").write_text("b", encoding="utf-8")
    prepare(options(folder), tmp_path / "out")
    (folder / "b.txt").rename(folder / "c.txt")
    with pytest.raises(ValueError, match=r"b\.txt has gone; .*c\.txt is new"):
        prepare(options(folder), tmp_path / "out")


def test_changed_tokenizer_files_are_a_change(corpus, tmp_path):
    (tmp_path / "tokenizer").mkdir()
    train_chars(TEXTS).save(tmp_path / "tokenizer")
    prepare(options(corpus, tokenizer=str(tmp_path / "tokenizer")), tmp_path / "out")
    assert prepare(options(corpus, tokenizer=str(tmp_path / "tokenizer")), tmp_path / "out").reused
    train_chars([*TEXTS, "Ω"]).save(tmp_path / "tokenizer")
    with pytest.raises(ValueError, match=r"the tokenizer files in .* have changed"):
        prepare(options(corpus, tokenizer=str(tmp_path / "tokenizer")), tmp_path / "out")


def test_damaged_data_are_not_used_again(corpus, tmp_path):
    prepare(options(corpus), tmp_path / "out")
    (tmp_path / "out" / "counts.bin").unlink()
    with pytest.raises(ValueError, match=r"counts\.bin is missing; prepare the data again, with --force"):
        prepare(options(corpus), tmp_path / "out")


def test_others_files_are_never_replaced(corpus, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("precious", encoding="utf-8")
    for force in (False, True):
        with pytest.raises(ValueError, match="the directory holds something else"):
            prepare(options(corpus), tmp_path / "out", force=force)
    with pytest.raises(ValueError, match="--out must be a directory"):
        prepare(options(corpus), corpus)


@pytest.mark.parametrize(
    ("content", "others", "message"),
    [
        (" \n\n\t\n", {}, r"source '.*a\.txt' has no text: all its documents are blank"),
        ("short\n", {"drop_last": True}, r"the 1 documents do not fill one sequence; .* leave out --drop-last"),
        ("a\nb\n", {"valid_last": 2}, r"--valid-last 2 holds out all of them, and there are only 2 documents; break"),
        (
            "a long line\n",
            {"valid_fraction": 0.05},
            r"one in 20, and there is only 1 document; break its lines, .* hold out nothing with --valid-fraction 0",
        ),
        (
            "a\nb\n",
            {"valid_fraction": 0.1, "documents": "file"},
            r"only 1 document; .* with --documents line, hold out",
        ),
        ("a\n", {"tokenizer": "./nowhere"}, r"--tokenizer \./nowhere: there is no such directory"),
        ("a\n", {"valid": ("none.txt",)}, r"source 'none\.txt': there is no such file"),
    ],
)
def test_bad_corpora_leave_nothing(content, others, message, tmp_path):
    (tmp_path / "a.txt").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        prepare(options(tmp_path / "a.txt", **others), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_memory_does_not_grow_with_the_corpus():
    """Batches are bounded: the largest array that is built does not depend on the number of documents."""
    lines = ("word " * 20 for _ in range(100_000))
    sizes = [len(batch.ids) for batch in encoding.encode_documents(lines, train_chars(["word "]))]
    assert max(sizes) <= encoding.BATCH_CHARACTERS + 100
    assert np.sum(sizes) == 100 * 100_000


def test_cells_beside_the_tokens_are_no_strangers_and_go_with_them(corpus, tmp_path):
    out = tmp_path / "out"
    prepare(options(corpus), out)
    folder = out / "cells" / "of-some-teacher"
    folder.mkdir(parents=True)
    prepare(options(corpus), out)
    assert folder.is_dir()
    prepare(options(corpus, length=16), out, force=True)
    assert not (out / "cells").exists()
