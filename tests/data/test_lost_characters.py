"""A character that a tokenizer lacks is told of, and files that are no text are named for what they are."""

import pytest

from multimdm.cli.main import main
from multimdm.data.documents import other_than_text
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
        (word_tokenizer(["a", "dog"]), "a dog", "a cat", "'cat'"),
        (tales_tokenizer(Tales()), "Lily found a red ball .", "Lily found a zebra .", "'zebra'"),
    ],
    ids=["chars", "dropping", "words", "tales"],
)
def test_what_no_token_stands_for_is_an_error(tokenizer, known, strange, lost):
    assert tokenizer.encode_given(known) == tokenizer.encode(known)
    with pytest.raises(ValueError, match=f"has no token for .*{lost}"):
        tokenizer.encode_given(strange)


def test_bytes_know_every_text():
    tokenizer = train_bpe(TEXT, 300)
    for text in ("naïve 👩 日本", " spaces  and\ttabs\n", ""):
        assert tokenizer.encode_given(text) == tokenizer.encode(text)


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


def _made(path):
    path.mkdir()
    return path
