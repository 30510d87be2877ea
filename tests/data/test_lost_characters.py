"""A character that a tokenizer lacks is told of, and files that are no text are named for what they are."""

import json

import pytest

from multimdm.cli.main import main
from multimdm.data import encoding
from multimdm.data.documents import other_than_text
from multimdm.data.manifest import Manifest
from multimdm.data.tales import Tales, tales_tokenizer
from multimdm.data.tokenizer import Tokenizer
from multimdm.data.trained_tokenizers import train_bpe, train_chars
from support.tiny_models import tales_model, word_model, word_tokenizer

TEXT = ["a dog runs over the grass"] * 5


def dropping():
    """Byte-pair encoding without an unknown token: what it lacks, the package leaves out."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import models

    return Tokenizer(Backend(models.BPE({"a": 0, "b": 1, " ": 2}, [])).to_str(), {}, "dropping")


@pytest.mark.parametrize(
    ("tokenizer", "known", "strange", "lost"),
    [
        (train_chars(TEXT), "a dog", "a dög", "'ö'"),
        (dropping(), "a b", "a bc", "'c'"),
        (dropping(), "a b", "a ζ b 漢字", "'ζ'"),
        (word_tokenizer(["a", "dog"]), "a dog", "a cat", "'cat'"),
        (tales_tokenizer(Tales()), "Lily found a red ball .", "Lily found a zebra .", "'zebra'"),
    ],
    ids=["chars", "dropping", "dropping in the middle", "words", "tales"],
)
def test_what_no_token_stands_for_is_an_error(tokenizer, known, strange, lost):
    assert tokenizer.encode_given(known) == tokenizer.encode(known)
    with pytest.raises(ValueError, match=f"has no token for .*{lost}"):
        tokenizer.encode_given(strange)


def test_bytes_know_every_text():
    tokenizer = train_bpe(TEXT, 300)
    for text in ("naïve 👩 日本", " spaces  and\ttabs\n", ""):
        assert tokenizer.encode_given(text) == tokenizer.encode(text)


def test_what_a_whole_batch_loses_is_told_with_the_next(monkeypatch):
    monkeypatch.setattr(encoding, "BATCH_CHARACTERS", 4)
    found = list(encoding.encode_documents(["a b a", "漢字漢字漢", "ζζζζ", "    ", "b a b c"], dropping()))
    assert [len(batch.ids) for batch in found] == [5, 4, 6]
    assert [batch.lost.tolist() for batch in found if batch.lost is not None] == [
        [[0, 0]],
        [[9, ord("漢")]],
        [[1, ord("c")]],
    ]


def test_prompts_and_gaps_are_checked():
    model = tales_model()
    for call in (lambda: model.complete("a zebra"), lambda: model.infill("a zebra [MASK]")):
        with pytest.raises(ValueError, match="has no token for"):
            call()
    tokenizer = train_chars(TEXT)
    with pytest.raises(ValueError, match="has no token for '!'"):
        word_model(tokenizer).complete("a dog!")


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        ("über alles\n".encode("utf-16"), "iconv -f UTF-16 -t UTF-8"),
        ("plain words\n".encode("utf-16-le"), "iconv -f UTF-16LE -t UTF-8"),
        ("plain words\n".encode("utf-16-be"), "iconv -f UTF-16BE -t UTF-8"),
        ("plain words\n".encode("utf-32"), "iconv -f UTF-32 -t UTF-8"),
        (bytes(range(256)) * 4, "it is a binary file, not text"),
        (b"\x7fELF\x02\x01\x01\0\0\0\0\0plain\n", "it is a binary file, not text"),
        ("naïve\n".encode("latin-1"), "iconv -f LATIN1 -t UTF-8"),
        (b"a stray \0 in much text" + b" and more" * 50, "tr -d"),
    ],
)
def test_files_that_are_not_utf_8(content, advice, tmp_path, capsys):
    source = tmp_path / "text.txt"
    source.write_bytes(content)
    assert main(["prepare", str(source), "--tokenizer", "bpe:300", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert f"{source}, line " in error
    assert advice in error


def test_text_is_text():
    assert other_than_text("naïve\n".encode("latin-1")) is None
    assert other_than_text(b"") is None


def test_unknown_tokens_are_a_warning_of_prepare(tmp_path, capsys):
    train_chars(TEXT).save(_made(tmp_path / "chars"))
    (tmp_path / "text.txt").write_text("a dög\n" * 10)
    arguments = [str(tmp_path / "text.txt"), "--tokenizer", str(tmp_path / "chars"), "--length", "8"]
    assert main(["prepare", *arguments, "--layout", "padded", "--out", str(tmp_path / "out")]) == 0
    assert "stand for text that the tokenizer does not know" in capsys.readouterr().out


LETTERS = ["On Monday ζ we", "were here 漢字.", "plain", "ζζ", "On Friday"] * 10


def _letters() -> Tokenizer:
    """As strangers make them: letters, an end of text, no unknown token."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import models

    vocabulary = {token: i for i, token in enumerate(["<s>", "</s>", *"OnMdaoyweri.Fthpls "])}
    return Tokenizer(Backend(models.BPE(vocabulary, [])).to_str(), {"bos": "<s>", "eos": "</s>"}, "letters")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_what_is_left_out_is_counted_and_a_warning_of_prepare(workers, tmp_path, capsys):
    _letters().save(_made(tmp_path / "letters"))
    (tmp_path / "text.txt").write_text("\n".join(LETTERS), encoding="utf-8")
    arguments = ["--tokenizer", str(tmp_path / "letters"), "--length", "16", "--valid-fraction", "0.2"]
    arguments += ["--workers", workers, "--out", str(tmp_path / "out")]
    assert main(["prepare", str(tmp_path / "text.txt"), *arguments]) == 0
    told = capsys.readouterr().out
    # ζζ is no document; what it lost is told of with the next. Every fifth of the others is held out.
    lost = {split: Manifest.read(tmp_path / "out" / split).counts for split in ("train", "valid")}
    assert sum(counts.unknown for counts in lost.values()) == 10 * 5
    assert lost["train"].first_lost == "ζ"
    assert f"{lost['train'].unknown} characters of train are left out, 'ζ' first" in told


@pytest.mark.parametrize("others", [["--layout", "padded"], ["--layout", "pairs"], ["mix"]])
def test_what_is_left_out_is_counted_in_every_layout(others, tmp_path):
    _letters().save(_made(tmp_path / "letters"))
    (tmp_path / "text.txt").write_text("\n".join(LETTERS), encoding="utf-8")
    record = json.dumps({"prompt": "On ζ", "answer": "Friday 漢字"})
    (tmp_path / "pairs.jsonl").write_text(f"{record}\n" * 3, encoding="utf-8")
    sources = [str(tmp_path / ("pairs.jsonl" if "pairs" in others else "text.txt"))]
    if others == ["mix"]:
        sources, others = ["--mix", f"1:{sources[0]}"], []
    arguments = ["--tokenizer", str(tmp_path / "letters"), "--length", "24", "--out", str(tmp_path / "out")]
    assert main(["prepare", *sources, *others, *arguments]) == 0
    assert Manifest.read(tmp_path / "out").counts.unknown == (9 if "pairs" in others else 50)


def test_text_of_which_nothing_remains_is_an_error(tmp_path, capsys):
    _letters().save(_made(tmp_path / "letters"))
    (tmp_path / "text.txt").write_text("ζζζ\n漢字\n", encoding="utf-8")
    arguments = [str(tmp_path / "text.txt"), "--tokenizer", str(tmp_path / "letters"), "--out", str(tmp_path / "out")]
    assert main(["prepare", *arguments]) == 2
    assert "are blank, or of characters that the tokenizer lacks" in capsys.readouterr().err


def test_which_tokenizers_lose_characters():
    from tokenizers import Tokenizer as Backend
    from tokenizers import models, pre_tokenizers

    def of(model, pre_tokenizer=None) -> Tokenizer:
        backend = Backend(model)
        if pre_tokenizer is not None:
            backend.pre_tokenizer = pre_tokenizer
        return Tokenizer(backend.to_str(), {}, "some")

    in_bytes = pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel()])
    alphabet = {byte: i for i, byte in enumerate(pre_tokenizers.ByteLevel.alphabet())}
    fallback = {f"<0x{byte:02X}>": byte for byte in range(256)}
    assert of(models.BPE({"a": 0}, [])).loses
    assert of(models.BPE({"a": 0}, []), in_bytes).loses  # most bytes are no tokens
    assert of(models.BPE({"a": 0, "<0x00>": 1}, [], byte_fallback=True)).loses
    assert not of(models.BPE(alphabet, []), in_bytes).loses
    assert not of(models.BPE(fallback, [], byte_fallback=True)).loses
    assert not train_bpe(TEXT, 300).loses
    assert not train_chars(TEXT).loses
    assert not word_tokenizer(["a", "dog"]).loses


def _made(path):
    path.mkdir()
    return path
