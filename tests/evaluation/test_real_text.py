"""Held-out text: what samples are compared with, and what the NELBO is measured on."""

import pytest
import torch

from multimdm.data.options import PrepareOptions
from multimdm.data.prepared import PreparedData
from multimdm.data.preparing import prepare
from multimdm.data.trained_tokenizers import train_chars
from multimdm.evaluation.held_out import validation_times
from multimdm.evaluation.judges import make_judge
from multimdm.evaluation.measurement import describe
from multimdm.evaluation.nelbo import evaluate_nelbo, nelbo_sums
from multimdm.evaluation.real_text import describe_real, real_text
from multimdm.evaluation.sample_statistics import unigram_entropy
from multimdm.evaluation.settings import Drawing
from multimdm.pipeline import Model, Samples
from multimdm.process import MultiMask, Streams
from support.present import present
from support.tiny_judges import KnownJudge
from support.tiny_models import TALES, causal_tales_model, tales_model, tiny_dit


@pytest.fixture
def prepared(tmp_path):
    text = "".join(f"document number {i} is about {i * i}\n" for i in range(200))
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    options = PrepareOptions(sources=(str(tmp_path / "a.txt"),), tokenizer="chars", length=16, valid_fraction=0.3)
    prepare(options, tmp_path / "out")
    return tmp_path / "out"


def model_of(prepared, length: int = 16) -> Model:
    tokenizer = PreparedData.open(prepared / "valid").tokenizer()
    V = tokenizer.vocab_size
    return Model(tiny_dit(V, 2, length), MultiMask(V, 2), tokenizer)


def test_tales():
    text = real_text("tales", tales_model())
    assert text.nats_per_token == TALES.entropy_per_token
    example = text.take(20)
    assert bool(TALES.valid(example.ids).all())
    assert torch.equal(text.take(5).ids, example.ids[:5])
    figures = describe_real(text, make_judge("tales", tales_model()), entropy_of=20, judged=5)
    assert figures.entropy.value == pytest.approx(float(unigram_entropy(example.ids).mean()))
    nats = -float(TALES.log_prob(example.ids[:5]).sum()) / (5 * 48)
    assert present(figures.gen_ppl).value == pytest.approx(2.718281828459045**nats)
    assert (figures.sequences, figures.judged, figures.judge) == (20, 5, "tales")


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_samples_that_are_real_text_have_its_figures(layout, tmp_path):
    """Whoever writes exactly the data, padding included, is as varied and as probable as the data."""
    lines = [" ".join(str(k) for k in range(i % 7, 7 + i % 3)) for i in range(300)]
    (tmp_path / "a.txt").write_text("\n".join(lines), encoding="utf-8")
    options = PrepareOptions(
        sources=(str(tmp_path / "a.txt"),), tokenizer="chars", length=24, layout=layout, valid_fraction=0.3
    )
    prepare(options, tmp_path / "out")
    model = model_of(tmp_path / "out", 24)
    text = real_text(tmp_path / "out", model, 24)
    V = model.network.config.vocab_size
    judge = KnownJudge(torch.linspace(0.5, 3.0, V), counted_below=V)
    ids = text.take(50).ids
    real = describe_real(text, judge, entropy_of=50, judged=50)
    written = describe(model, judge, Samples(ids, [], 1), 1, 1.0, Drawing(num=len(ids)))
    assert (written.entropy, written.pooled_entropy) == (real.entropy, real.pooled_entropy)
    assert present(written.gen_ppl).value == pytest.approx(present(real.gen_ppl).value, rel=1e-12)
    if layout == "padded":
        assert bool((~text.take(50).valid).any()), "there must be padding"


def test_prepared_data_are_the_held_out_split_spread_evenly(prepared):
    data = PreparedData.open(prepared / "valid")
    text = real_text(prepared, model_of(prepared))
    assert text.name == str(prepared / "valid")
    size = len(data)
    assert torch.equal(text.take(3).ids, data[[0, size // 3, 2 * size // 3]].ids)
    assert len(text.take(10**6).ids) == size
    figures = describe_real(text, None)
    assert figures.gen_ppl is None
    whole = data[list(range(size))]
    assert figures.entropy.value == pytest.approx(float(unigram_entropy(whole.ids, whole.valid).mean()))


def test_sequences_are_cut_to_the_length_of_the_samples(prepared):
    model = model_of(prepared)
    assert real_text(prepared, model, 7).take(4).ids.shape == (4, 7)
    assert real_text(prepared, model, 7).fingerprint != real_text(prepared, model).fingerprint
    with pytest.raises(ValueError, match=r"sequences of 16 tokens, the samples 20.*--length 16"):
        real_text(prepared, model_of(prepared, 20), 20)


def test_lengths_are_part_of_the_key(prepared):
    """Equal tokens with padding elsewhere are other sequences."""
    model = model_of(prepared)
    before = real_text(prepared, model).fingerprint
    path = prepared / "valid" / "lengths.bin"
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] - 1]) + content[1:])
    assert real_text(prepared, model).fingerprint != before


def test_data_that_do_not_fit_are_refused(prepared):
    with pytest.raises(ValueError, match="prepare the data with the tokenizer of the model"):
        real_text(prepared, tales_model())
    with pytest.raises(ValueError, match="tales can be used only with a model of Tales"):
        real_text("tales", model_of(prepared))
    with pytest.raises(ValueError, match="length must be at most 8"):
        real_text(prepared, model_of(prepared, 8))
    with pytest.raises(ValueError, match="holds no prepared data"):
        real_text(prepared.parent, tales_model())
    other = model_of(prepared)
    other.tokenizer = train_chars(["xyz"])
    with pytest.raises(ValueError, match="was prepared with tokenizer"):
        real_text(prepared, other)
    other.tokenizer = None
    with pytest.raises(ValueError, match="has no tokenizer"):
        real_text(prepared, other)


def test_nelbo_is_that_of_validation_and_no_batch_changes_it():
    model, text = tales_model(), real_text("tales", tales_model())
    whole, parts = (evaluate_nelbo(model, text, 20, draws=2, seed=5, batch_size=b) for b in (20, 6))
    ids = text.take(20).ids
    sums = nelbo_sums(model.network, model.process, ids, None, validation_times(20, 2, 5), Streams.spawn(5, 20))
    assert whole == sums.estimate()
    assert parts.total == pytest.approx(whole.total, rel=1e-6)
    assert parts.standard_error == pytest.approx(whole.standard_error, rel=1e-6)
    assert whole.identification > 0


def test_nelbo_of_padded_data_counts_what_is_there(prepared):
    model, done = model_of(prepared), []
    text = real_text(prepared, model)
    result = evaluate_nelbo(model, text, 10**6, progress=done.append)
    assert result.tokens == PreparedData.open(prepared / "valid").manifest.counts.tokens
    assert sum(done) == result.sequences


def test_nelbo_of_an_autoregressive_model_is_exact():
    model = causal_tales_model()
    one, other = (evaluate_nelbo(model, real_text("tales", model), 12, seed=seed) for seed in (0, 1))
    assert one.total == pytest.approx(other.total, rel=1e-9)


def test_the_mode_of_the_network_is_put_back():
    model = tales_model()
    model.network.train()
    evaluate_nelbo(model, real_text("tales", model), 4)
    assert model.network.training


@pytest.mark.parametrize("wrong", [{"sequences": 0}, {"draws": 0}, {"batch_size": 0}])
def test_bad_numbers_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        evaluate_nelbo(tales_model(), real_text("tales", tales_model()), **wrong)
