import math
from dataclasses import asdict

import pytest
import torch

from multimdm.evaluation.measurement import Measurement, describe, draw, measure
from multimdm.evaluation.sample_statistics import unigram_entropy
from multimdm.evaluation.settings import Drawing, label_of
from multimdm.evaluation.trajectory import trajectory
from multimdm.pipeline import Samples
from multimdm.process import Streams
from multimdm.samplers.settings import SamplingRules
from multimdm.samplers.trace import CLEAN
from support.present import present
from support.tiny_judges import KnownJudge
from support.tiny_models import TALES, tales_model, word_model, word_tokenizer


def test_gen_ppl_and_entropy_by_hand():
    model, drawing = tales_model(), Drawing(num=10)
    judge = KnownJudge(torch.linspace(0.1, 5.0, 404), counted_below=300)
    result = measure(model, judge, 2, 1.0, drawing)
    ids = model.sample(num=10, steps=2, seed=0).ids
    nats = [float(judge.nats[i]) for i in ids.flatten().tolist() if i < 300]
    gen_ppl = present(result.gen_ppl)
    assert gen_ppl.value == pytest.approx(math.exp(sum(nats) / len(nats)), rel=1e-6)
    assert gen_ppl.contains(gen_ppl.value)
    assert gen_ppl.width > 0
    assert result.entropy.value == pytest.approx(float(unigram_entropy(ids).mean()))
    assert (result.steps, result.nfe, result.num, result.length, result.judge) == (2, 2, 10, 48, "known")
    assert len(result.texts) == 4


def test_the_batch_size_changes_nothing():
    model = tales_model()
    whole, parts = (measure(model, None, 3, 0.8, Drawing(num=7, batch_size=b)) for b in (7, 3))
    assert whole == parts
    assert whole.gen_ppl is None


def test_the_first_samples_of_more_are_the_samples_of_fewer():
    """No partial batch is dropped, and measurements at different sizes share their samples."""
    model = tales_model()
    few, many = (draw(model, 2, 1.0, Drawing(num=n, batch_size=4)).ids for n in (5, 9))
    assert torch.equal(few, many[:5])
    assert len(many) == 9


def test_real_stories_are_valid_and_random_ones_are_not():
    model, stories = tales_model(), TALES.sample(6, Streams(list(range(6))))
    stories[5] = stories[4]
    stories[0, 0] = TALES.stop_id
    result = describe(model, None, Samples(stories, ["text"] * 6, 1), 1, 1.0, Drawing(num=6))
    assert present(result.valid_stories).value == pytest.approx(5 / 6)
    counts = TALES.valid_sentences(stories)
    assert present(result.valid_sentences).value == pytest.approx(float(counts.valid.sum() / counts.total.sum()))
    assert result.duplicates.value == pytest.approx(2 / 6)
    assert present(result.valid_stories).contains(5 / 6)
    nonsense = Samples(torch.full((6, 48), TALES.stop_id), [], 1)
    none = present(describe(model, None, nonsense, 1, 1.0, Drawing(num=6)).valid_sentences)
    assert none.value == none.low == 0
    assert present(none.high) > 0.1  # six samples prove little


def test_real_stories_are_as_far_from_the_source_as_chance_has_it_and_random_ones_are_not():
    model, stories = tales_model(), TALES.sample(100, Streams.spawn(5, 100))
    real = describe(model, None, Samples(stories, [], 1), 1, 1.0, Drawing(num=100))
    assert present(real.token_distance).contains(present(real.token_chance))
    assert present(real.pair_distance).contains(present(real.pair_chance))
    random = measure(model, None, 1, 1.0, Drawing(num=100))
    assert (random.token_chance, random.pair_chance) == (real.token_chance, real.pair_chance)
    assert present(present(random.token_distance).low) > present(random.token_chance)
    assert present(present(random.pair_distance).low) > present(random.pair_chance)


def test_other_data_have_no_source():
    model = word_model(word_tokenizer(["a", "b", "c"]))
    result = measure(model, None, 2, 1.0, Drawing(num=4))
    assert result.token_distance is result.token_chance is result.pair_distance is result.pair_chance is None
    assert result.valid_stories is None


def test_progress_adds_up():
    done = []
    measure(tales_model(), KnownJudge(torch.ones(404), 404), 3, 1.0, Drawing(num=10, batch_size=4), done.append)
    assert sum(done) == 3 * 10


def test_every_law_can_be_measured():
    model = tales_model()
    blocks = Drawing(num=4, law=SamplingRules(order="confidence", block_length=12, threshold=0.9))
    assert measure(model, None, 8, 1.0, blocks).nfe <= 8
    times = Drawing(num=4, law=SamplingRules(grid=(1.0, 0.3, 0.0)))
    times.check()
    assert measure(model, None, 2, 1.0, times).nfe == 2
    with pytest.raises(ValueError, match="steps must be 2 for a grid of 3 times"):
        measure(model, None, 4, 1.0, times)


def test_other_laws_are_heeded():
    model = tales_model()
    laws = SamplingRules(), SamplingRules(top_k=1)
    usual, top = (measure(model, None, 2, 1.0, Drawing(num=8, law=law)) for law in laws)
    assert top.entropy.value < usual.entropy.value


@pytest.mark.parametrize(
    ("drawing", "steps", "temperature", "message"),
    [
        (Drawing(num=0), 4, 1.0, "num must be an integer of at least 1; got 0"),
        (Drawing(length=0), 4, 1.0, "length must be an integer of at least 1; got 0"),
        (Drawing(seed=-1), 4, 1.0, "seed must be an integer of at least 0; got -1"),
        (Drawing(), 0, 1.0, "steps"),
        (Drawing(), 4, -0.5, "temperature must be"),
        (Drawing(length=99), 4, 1.0, "length must be at most 48"),
        (Drawing(law=SamplingRules(top_p=0.0)), 4, 1.0, "top_p must lie in"),
    ],
)
def test_bad_settings_are_refused(drawing, steps, temperature, message):
    with pytest.raises(ValueError, match=message):
        measure(tales_model(), None, steps, temperature, drawing)


def test_a_measurement_is_plain_data():
    result = measure(tales_model(), None, 1, 1.0, Drawing(num=2))
    assert isinstance(result, Measurement)
    assert asdict(result)["entropy"]["value"] == result.entropy.value


def test_trajectory_is_that_of_the_first_sample():
    model, drawing = tales_model(num_masks=3), Drawing(num=5, seed=3)
    picture = present(trajectory(model, 4, drawing))
    assert picture.times == (1.0, 0.75, 0.5, 0.25, 0.0)
    assert {kind for kind in picture.kinds[-1]} == {CLEAN}
    assert picture.several_masks
    assert set(picture.words[0]) <= {"0", "1", "2"}
    for temperature in (1.0, 0.0):
        picture = present(trajectory(model, 4, drawing, temperature))
        final = draw(model, 4, temperature, drawing).ids[0]
        assert list(picture.words[-1]) == [TALES.vocabulary[i] for i in final.tolist()]
        assert picture.temperature == temperature


def test_long_trajectories_are_thinned():
    picture = present(trajectory(tales_model(num_masks=1), 40, Drawing(num=1)))
    assert len(picture.times) == 17
    assert (picture.times[0], picture.times[-1]) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("path", "label"), [("runs/mdlm/model", "mdlm"), ("runs/mdlm/", "mdlm"), ("org/name", "name"), ("model", "model")]
)
def test_labels(path, label):
    assert label_of(path) == label


def test_the_label_of_the_place_where_one_is(tmp_path, monkeypatch):
    (tmp_path / "mine" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "mine" / "model")
    assert label_of(".") == label_of("../model") == "mine"
