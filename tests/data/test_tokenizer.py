import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from multimdm.data import foreign_tokenizers
from multimdm.data.foreign_tokenizers import directory_hash, load_tokenizer
from multimdm.data.tokenizer import Tokenizer
from multimdm.data.trained_tokenizers import bpe_size, train_bpe, train_chars

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "tokenizers"
shared = pytest.mark.skipif(not SHARED.exists(), reason="the shared tokenizers are not here")
TEXTS = ["the cat sat on the mat", "the dog sat\non the log — naïve", "  spaces  and <eos> [MASK] <|endoftext|> "]
BPE = train_bpe(TEXTS * 20, 300)
CHARS = train_chars(TEXTS)


@pytest.mark.parametrize("tokenizer", [BPE, CHARS])
def test_trained(tokenizer, tmp_path):
    ids = tokenizer.encode_batch(TEXTS)
    assert [tokenizer.decode(row) for row in ids] == TEXTS
    special = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id}
    assert {0, 1, 2} <= special
    assert not special & {i for row in ids for i in row}  # not even where the text spells them
    assert max(max(row) for row in ids) < tokenizer.vocab_size == len(tokenizer)
    assert tokenizer.mask_id is None
    assert tokenizer.encode_batch([]) == []

    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.encode_batch(TEXTS) == ids
    assert again.fingerprint == tokenizer.fingerprint == Tokenizer.saved_fingerprint(tmp_path)
    assert (again.name, again.bos_id, again.eos_id, again.pad_id, again.vocab_size) == (
        tokenizer.name,
        tokenizer.bos_id,
        tokenizer.eos_id,
        tokenizer.pad_id,
        tokenizer.vocab_size,
    )
    assert load_tokenizer(str(tmp_path)).fingerprint == tokenizer.fingerprint


@given(st.text())
def test_bytes_lose_nothing(text):
    assert BPE.decode(BPE.encode(text)) == text


def test_bpe():
    assert BPE.vocab_size <= 300
    assert BPE.name == "bpe:300"
    assert len(BPE.encode("the cat")) < len("the cat")
    assert train_bpe(TEXTS * 20, 300).fingerprint == BPE.fingerprint
    assert train_bpe(TEXTS * 20, 290).fingerprint != BPE.fingerprint


def test_chars():
    assert CHARS.vocab_size == 4 + len(set("".join(TEXTS)))
    assert CHARS.encode("caZ")[2] == CHARS.unk_id
    assert len(CHARS.encode("the cat")) == len("the cat")


def test_decode():
    ids = [BPE.bos_id, *BPE.encode("the cat"), BPE.eos_id]
    assert BPE.decode(ids) == BPE.decode(np.array(ids)) == BPE.decode(torch.tensor(ids)) == "the cat"
    assert BPE.decode(ids, keep_special=True) == "<bos>the cat<eos>"
    with pytest.raises(ValueError, match=f"id {BPE.vocab_size} is not a token of 'bpe:300'"):
        BPE.decode([BPE.vocab_size])


@pytest.mark.parametrize("name", ["bpe:", "bpe:x", "bpe:258", "bpe:-1"])
def test_bad_bpe_size(name):
    with pytest.raises(ValueError, match=f"--tokenizer {name}: SIZE in bpe:SIZE must be a number, at least 259"):
        bpe_size(name)


@shared
def test_gpt2():
    tokenizer = load_tokenizer(str(SHARED / "gpt2"))
    assert tokenizer.vocab_size == 50257
    assert tokenizer.bos_id == tokenizer.eos_id == 50256
    assert tokenizer.pad_id is None
    assert tokenizer.encode("Hello world") == [15496, 995]
    assert 50256 not in tokenizer.encode("<|endoftext|>")
    assert [tokenizer.decode(row) for row in tokenizer.encode_batch(TEXTS)] == TEXTS


@shared
def test_bert():
    tokenizer = load_tokenizer(str(SHARED / "bert-base-uncased"))
    assert tokenizer.vocab_size == 30522
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id, tokenizer.mask_id) == (101, 102, 0, 103)
    assert tokenizer.decode(tokenizer.encode("The café, naïve.")) == "the cafe, naive."
    assert 103 not in tokenizer.encode("a [MASK] here")


def test_cased_vocabulary(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "The", "cat"]
    (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    assert load_tokenizer(str(tmp_path)).encode("The the cat") == [6, 5, 7]


def test_tokenizer_json_of_others(tmp_path):
    BPE.save(tmp_path)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    tokenizer = load_tokenizer(str(tmp_path))
    assert tokenizer.encode_batch(TEXTS) == BPE.encode_batch(TEXTS)
    assert tokenizer.bos_id == tokenizer.eos_id == BPE.eos_id
    assert tokenizer.fingerprint != BPE.fingerprint


def test_what_is_saved_is_read_by_transformers(tmp_path):
    from transformers import AutoTokenizer

    BPE.save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert theirs("the cat", add_special_tokens=False)["input_ids"] == BPE.encode("the cat")
    assert (theirs.bos_token_id, theirs.eos_token_id, theirs.pad_token_id) == (BPE.bos_id, BPE.eos_id, BPE.pad_id)


def test_directory_hash(tmp_path):
    BPE.save(tmp_path)
    before = directory_hash(str(tmp_path))
    assert before == directory_hash(str(tmp_path))
    CHARS.save(tmp_path)
    assert directory_hash(str(tmp_path)) != before
    assert directory_hash("gpt2") is None


def test_bad_directories(tmp_path):
    with pytest.raises(ValueError, match=r"--tokenizer .*: there is no such directory"):
        load_tokenizer(str(tmp_path / "none"))
    with pytest.raises(ValueError, match=r"the directory holds no tokenizer; expected tokenizer\.json"):
        load_tokenizer(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="cannot be read"):
        load_tokenizer(str(tmp_path))


def test_bad_saved_tokenizers(tmp_path):
    with pytest.raises(ValueError, match=r"holds no saved tokenizer: tokenizer\.json is missing"):
        Tokenizer.load(tmp_path)
    BPE.save(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"tokenizer 'bpe:300': tokenizer\.json is not JSON"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match="is not JSON"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="holds a foreign tokenizer"):
        Tokenizer.load(tmp_path)
    BPE.save(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text()) | {"eos_token": "</s>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape("its eos token '</s>' is not in its vocabulary")):
        Tokenizer.load(tmp_path)


def test_a_tokenizer_that_the_hub_does_not_give(monkeypatch):
    """It answers, and then breaks off; one that does not answer at all is test_without_a_hub.py's."""
    from transformers import AutoTokenizer

    def unreachable(*_, **__):
        raise OSError("no connection\nmore")

    monkeypatch.setattr(foreign_tokenizers, "hub_silence", lambda name: None)
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", unreachable)
    with pytest.raises(ValueError, match=r"--tokenizer gpt2: neither a directory here nor .*\(no connection\); give"):
        load_tokenizer("gpt2")
