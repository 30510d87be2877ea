"""A preparation that was stopped goes on, to the bytes of one that was not, and with nothing that it should not use."""

import gzip
import json
from dataclasses import replace

import pytest

from multimdm.data import encoding, encoding_work, preparing
from multimdm.data.options import PrepareOptions
from multimdm.data.preparing import prepare
from multimdm.data.tokenizer import Tokenizer
from multimdm.data.unfinished import unfinished

LINES = [f"the {'very ' * (i % 5)}old cat sat on {i} mats\n" for i in range(60)]


class StopError(Exception):
    pass


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(encoding, "BATCH_CHARACTERS", 200)


@pytest.fixture
def corpus(tmp_path):
    """Three files, one of them compressed."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.txt").write_text("".join(LINES[:25]))
    (folder / "b.txt.gz").write_bytes(gzip.compress("".join(LINES[25:40]).encode()))
    (folder / "c.txt").write_text("".join(LINES[40:]))
    return folder


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"what is {i}?", "answer": f"it is {i}"}) + "\n" for i in range(40)))
    return path


def options(source, **others) -> PrepareOptions:
    return PrepareOptions(**{"sources": (str(source),), "tokenizer": "bpe:300", "length": 16} | others)


def content(directory) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


def stopped(asked, out, pieces, **others) -> None:
    """Stopped behind so many pieces."""
    seen = 0

    def stop(state):
        nonlocal seen
        seen += state.stage == "encoding"
        if seen == pieces:
            raise StopError

    with pytest.raises(StopError):
        prepare(asked, out, progress=stop, **others)


KINDS = {
    "packed": {},
    "held out": {"valid_fraction": 0.1, "drop_last": True},
    "held out last": {"valid_last": 7, "layout": "padded"},
    "limited": {"max_documents": 45},
    "mixed": {"mix": True},
    "repeated": {"mix": True, "repeat": True},
    "pairs": {"layout": "pairs"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_comes_to_the_same_bytes(kind, corpus, pairs, tmp_path, monkeypatch):
    asked = options(pairs if kind == "pairs" else corpus, **{k: v for k, v in KINDS[kind].items() if k != "mix"})
    if "mix" in KINDS[kind]:
        asked = replace(asked, sources=(), mix=(f"2:{corpus / 'a.txt'}", f"1:{corpus / 'c.txt'}"))
    prepare(asked, tmp_path / "whole")
    for pieces in (1, 3, 4):
        stopped(asked, tmp_path / "out", pieces)
    encoded = []
    encode = Tokenizer.encode_batch
    monkeypatch.setattr(Tokenizer, "encode_batch", lambda *given: encoded.extend(given[1]) or encode(*given))
    monkeypatch.setattr(preparing, "train_bpe", lambda *_: pytest.fail("the tokenizer was trained twice"))
    result = prepare(asked, tmp_path / "out")
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    assert result.kept > 0
    assert len(encoded) < 60
    assert not (tmp_path / ".out.unfinished").exists()


def test_files_that_are_finished_are_not_read_again(corpus, tmp_path, monkeypatch):
    pieces = 1 + sum(map(len, LINES[:40])) // 200
    stopped(options(corpus), tmp_path / "out", pieces)
    opened = []
    documents = encoding_work.Source.__args__[0].documents
    monkeypatch.setattr(
        encoding_work.Source.__args__[0],
        "documents",
        lambda source, advance, part: opened.append(part) or documents(source, advance, part),
    )
    seen = []
    prepare(options(corpus), tmp_path / "out", progress=seen.append)
    assert opened == [2]
    assert seen[-1].bytes_read == seen[-1].bytes_total
    assert seen[-1].documents == 60


def test_several_processes_come_to_the_same_bytes(corpus, tmp_path):
    prepare(options(corpus), tmp_path / "one")
    stopped(options(corpus), tmp_path / "two", 3, workers=2)
    result = prepare(options(corpus), tmp_path / "two", workers=2)
    assert result.kept > 0
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_other_settings_are_refused_and_force_begins_anew(corpus, tmp_path):
    stopped(options(corpus), tmp_path / "out", 3)
    kept = content(tmp_path / ".out.unfinished")
    message = r"an unfinished preparation is kept there, of something else \(--length was 16, is 20\).*--force"
    with pytest.raises(ValueError, match=message):
        prepare(options(corpus, length=20), tmp_path / "out")
    assert content(tmp_path / ".out.unfinished") == kept
    assert prepare(options(corpus, length=20), tmp_path / "out", force=True).kept == 0
    stopped(options(corpus), tmp_path / "other", 3, force=True)
    assert prepare(options(corpus), tmp_path / "other", force=True).kept > 0


def test_a_changed_source_is_refused(corpus, tmp_path):
    stopped(options(corpus), tmp_path / "out", 3)
    (corpus / "c.txt").touch()
    (corpus / "a.txt").write_text("".join(LINES[:25]).replace("cat", "dog"))
    with pytest.raises(ValueError, match=r"of something else \(.*a\.txt has changed\)"):
        prepare(options(corpus), tmp_path / "out")
    (corpus / "a.txt").write_text("".join(LINES[:25]))  # the same bytes at another time
    assert prepare(options(corpus), tmp_path / "out").kept > 0


def test_a_text_that_changed_unseen_is_refused(corpus, tmp_path, monkeypatch):
    """As a data set of the Hub might, of which there is no hash."""
    stopped(options(corpus), tmp_path / "out", 2)
    monkeypatch.setattr("multimdm.data.unfinished.changes", lambda *_: [])
    (corpus / "a.txt").write_text("".join(LINES[:25]).replace("cat", "dog"))
    with pytest.raises(ValueError, match=r"is not what it was when this preparation began; .* remove .*\.unfinished"):
        prepare(options(corpus), tmp_path / "out")
    assert (tmp_path / ".out.unfinished").exists()


@pytest.mark.parametrize("bit", [100, -1])
def test_a_damaged_piece_is_encoded_again(bit, corpus, tmp_path, capsys):
    prepare(options(corpus), tmp_path / "whole")
    stopped(options(corpus), tmp_path / "out", 4)
    piece = tmp_path / ".out.unfinished" / "source-000" / "000001.piece"
    damaged = bytearray(piece.read_bytes())
    damaged[bit] ^= 1
    piece.write_bytes(damaged)
    result = prepare(options(corpus), tmp_path / "out")
    assert f"{piece} cannot be used" in capsys.readouterr().err
    assert 0 < result.kept < 15
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_a_piece_that_is_gone_is_noticed_though_the_source_was_complete(corpus, tmp_path):
    two = replace(options(corpus / "a.txt"), sources=(str(corpus / "a.txt"), str(corpus / "c.txt")))
    prepare(two, tmp_path / "whole")
    stopped(two, tmp_path / "out", 6)
    pieces = tmp_path / ".out.unfinished" / "source-000"
    assert (pieces / "end").exists()
    max(pieces.glob("*.piece")).unlink()
    prepare(two, tmp_path / "out")
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_a_damaged_tokenizer_is_made_again(corpus, tmp_path):
    prepare(options(corpus), tmp_path / "whole")
    stopped(options(corpus), tmp_path / "out", 2)
    (tokenizer,) = (tmp_path / ".out.unfinished").glob("tokenizer-*/tokenizer.json")
    tokenizer.write_text(tokenizer.read_text().replace("cat", "cot"))
    assert prepare(options(corpus), tmp_path / "out").kept > 0
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_a_fault_of_the_text_leaves_nothing(corpus, tmp_path):
    (corpus / "c.txt").write_bytes(b"good\n" * 200 + b"\xff\n")
    asked = options(corpus, tokenizer=str(_tokenizer(tmp_path)))
    with pytest.raises(ValueError, match="not valid UTF-8"):
        prepare(asked, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "tokenizer"]


def _tokenizer(folder):
    directory = folder / "tokenizer"
    directory.mkdir()
    preparing.train_bpe(LINES, 300).save(directory)
    return directory


def test_two_at_once_are_refused(corpus, tmp_path):
    with unfinished(tmp_path / "out"), pytest.raises(ValueError, match="another process is preparing it"):
        prepare(options(corpus), tmp_path / "out")
    assert prepare(options(corpus), tmp_path / "out").kept == 0


def test_a_silent_hub_takes_nothing_away(corpus, tmp_path, monkeypatch):
    """The tokenizer that it gave is kept, and so is what was encoded."""
    asked = options(corpus, tokenizer=str(_tokenizer(tmp_path)))
    stopped(asked, tmp_path / "out", 3)

    def silent(name):
        raise ValueError(f"{name}: the Hub is silent")

    monkeypatch.setattr(preparing, "load_tokenizer", silent)
    assert prepare(asked, tmp_path / "out").kept > 0


def test_workers_are_at_least_one(corpus, tmp_path):
    with pytest.raises(ValueError, match="--workers must be at least 1; got 0"):
        prepare(options(corpus), tmp_path / "out", workers=0)


def test_a_worker_that_is_killed_is_told_of(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(encoding_work, "_encode", _die)
    with pytest.raises(ChildProcessError, match="take fewer --workers: the same command goes on"):
        prepare(options(corpus), tmp_path / "out", workers=2)
    monkeypatch.undo()
    prepare(options(corpus), tmp_path / "out")


def _die(*_):
    import os

    os._exit(9)
