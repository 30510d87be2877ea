import json
import re

import datasets
import pyarrow
import pyarrow.parquet as parquet
import pytest

from multimdm.data import files
from multimdm.data.documents import Reading
from multimdm.data.options import PRESETS, PrepareOptions
from multimdm.data.sources import FileStamp, HubSource, open_source


def documents(name, reading=Reading(), advance=lambda _: None) -> list[str]:  # noqa: B008
    return list(open_source(str(name), reading).documents(advance))


def write(path, text):
    path.write_bytes(text.encode())
    return path


def test_lines(tmp_path):
    path = write(tmp_path / "a.txt", "\ufeffone\r\n\n two \u2028 still two\n \t\nthree")
    assert documents(path) == ["one", " two \u2028 still two", "three"]


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1000])
def test_lines_do_not_depend_on_blocks(block, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", block)
    path = write(tmp_path / "a.txt", "één\n\nzwei🙂\n\n\ndrei")
    assert documents(path) == ["één", "zwei🙂", "drei"]


def test_paragraphs_and_whole_files(tmp_path):
    path = write(tmp_path / "a.txt", "one\ntwo\n\n \nthree\n")
    assert documents(path, Reading("paragraph")) == ["one\ntwo", "three"]
    assert documents(path, Reading("file")) == ["one\ntwo\n\n \nthree"]
    assert documents(path, Reading("line", separator="two")) == ["one", "\n \nthree"]


def test_several_files_in_order(tmp_path):
    write(tmp_path / "b.txt", "2\n")
    write(tmp_path / "a.txt", "1\n")
    assert documents(tmp_path) == ["1", "2"]


def test_json_lines(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "one\\ntwo"}\n\n{"text": "\\u00e9", "n": 1}\n{"text": ""}\n')
    assert documents(path) == ["one\ntwo", "é"]
    path = write(tmp_path / "b.json", '{"body": "x"}\n')
    assert documents(path, Reading(field="body")) == ["x"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"txt": "a", "n": 1}', "no field 'text', only 'txt', 'n'; choose one with --field"),
        ('{"text": 3}', "field 'text' is 3, not text"),
        ('{"text": null}', "field 'text' is null, not text"),
        ("[1, 2]", "a JSON list; every line must be one JSON object"),
        ("{", "not JSON"),
        ('{"text": "\\ud800"}', "half a surrogate pair"),
    ],
)
def test_bad_json_lines(line, message, tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "fine"}\n\n' + line + "\n")
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        documents(path)
    assert str(error.value).startswith(f"{path}, line 3: ")


@pytest.mark.parametrize("block", [3, 1 << 20])
def test_bytes_that_are_not_utf8(block, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", block)
    path = tmp_path / "a.txt"
    path.write_bytes("één\ntwo\n".encode() + b"caf\xe9 noir\nfour\n")
    with pytest.raises(ValueError, match=r"a\.txt, line 3: byte 0xe9 is not valid UTF-8; .*iconv"):
        documents(path)


def table(path, **columns):
    parquet.write_table(pyarrow.table(columns), path)
    return path


def test_parquet(tmp_path):
    texts = [f"text {i}" for i in range(3000)]
    path = table(tmp_path / "a.parquet", text=texts, n=list(range(3000)))
    used = []
    assert documents(path, advance=used.append) == texts
    assert sum(used) == path.stat().st_size
    assert documents(table(tmp_path / "b.parquet", body=["x"]), Reading(field="body")) == ["x"]


def test_bad_parquet(tmp_path):
    path = table(tmp_path / "a.parquet", body=["x"], n=[1])
    with pytest.raises(ValueError, match=r"a\.parquet: no column 'text', only 'body', 'n'; choose one with --field"):
        documents(path)
    with pytest.raises(ValueError, match="column 'n' is of type int64, not text"):
        documents(path, Reading(field="n"))
    with pytest.raises(ValueError, match="row 2: column 'text' is null"):
        documents(table(tmp_path / "b.parquet", text=["x", None]))
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match="damaged Parquet file"):
        documents(path, Reading(field="body"))


@pytest.fixture
def hub_answers(monkeypatch):
    monkeypatch.setattr("multimdm.data.sources.hub_silence", lambda *_, **__: None)


@pytest.mark.usefixtures("hub_answers")
def test_hub_data_sets(monkeypatch):
    calls = []

    def load(name, config, *, split, revision, streaming):
        calls.append((name, config, revision, split, streaming))
        return iter([{"text": "one"}, {"text": " "}, {"text": "two"}])

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert documents("hf:org/name") == ["one", "two"]
    assert documents("hf:org/name:config") == ["one", "two"]
    assert documents("hf:org/name@refs/convert/parquet") == ["one", "two"]
    assert documents("hf:name:config@1f2e#test") == ["one", "two"]
    assert documents("hf:name#test") == ["one", "two"]
    assert calls == [
        ("org/name", None, None, "train", True),
        ("org/name", "config", None, "train", True),
        ("org/name", None, "refs/convert/parquet", "train", True),
        ("name", "config", "1f2e", "test", True),
        ("name", None, None, "test", True),
    ]
    assert open_source("hf:name", Reading(), "other") == HubSource("hf:name", "name", None, None, "other", "text")
    with pytest.raises(ValueError, match="no column 'body', only 'text'"):
        documents("hf:name", Reading(field="body"))


@pytest.mark.usefixtures("hub_answers")
def test_hub_data_sets_that_cannot_be_had(monkeypatch):
    def load(*_, **__):
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", load)
    with pytest.raises(ValueError, match=r"source 'hf:x': cannot open data set 'x', split 'train' \(no network\)"):
        documents("hf:x")
    with pytest.raises(
        ValueError, match=r"data set 'x', split 'train', revision 'test' .* written hf:NAME:CONFIG@REVI"
    ):
        documents("hf:x@test")
    with pytest.raises(ValueError, match="there is no name in it"):
        documents("hf:@1f2e")


@pytest.mark.usefixtures("hub_answers")
@pytest.mark.parametrize(
    ("preset", "names"), [("lm1b", ["dvruette/lm1b"] * 2), ("openwebtext", ["dylanebert/openwebtext"])]
)
def test_presets_ask_for_data_sets_that_are_no_scripts(preset, names, monkeypatch):
    calls = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *names, **rest: calls.append((*names, rest)) or iter([]))
    options = PrepareOptions(**PRESETS[preset])
    for source in (*options.sources, *options.valid):
        assert list(open_source(source, options.reading, options.split).documents(lambda _: None)) == []
    assert [(name, config) for name, config, _ in calls] == [(name, None) for name in names]
    assert [rest["split"] for *_, rest in calls] == ["train", "test"][: len(names)]
    assert all(rest["revision"] is None and rest["streaming"] for *_, rest in calls)


@pytest.mark.usefixtures("hub_answers")
def test_hub_data_sets_hold_text(monkeypatch):
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: iter([{"text": "a"}, {"text": 3}]))
    with pytest.raises(ValueError, match="row 2: column 'text' is not text"):
        documents("hf:x")


def test_stamps_tell_a_changed_file_from_a_touched_one(tmp_path):
    path = write(tmp_path / "a.txt", "one")
    before = FileStamp.of(path).hashed()
    assert FileStamp.of(path).unchanged(before)
    path.touch()
    assert FileStamp.of(path).unchanged(before)
    write(path, "two")
    assert not FileStamp.of(path).unchanged(before)
    write(path, "three")
    assert not FileStamp.of(path).unchanged(before)


def test_json_and_text_of_the_same_corpus_agree(tmp_path):
    texts = ["one", "two words", "drei — vier"]
    write(tmp_path / "a.txt", "\n".join(texts))
    write(tmp_path / "a.jsonl", "\n".join(json.dumps({"text": text}) for text in texts))
    assert documents(tmp_path / "a.txt") == documents(tmp_path / "a.jsonl") == texts
