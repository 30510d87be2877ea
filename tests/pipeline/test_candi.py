"""A CANDI model as users hold it: saved and loaded, sampled, completed, filled in, measured."""

from pathlib import Path

import pytest
import torch

import multimdm
from multimdm.data.tales import tales_tokenizer
from multimdm.evaluation.measurement import measure
from multimdm.evaluation.nelbo import nelbo_sums
from multimdm.evaluation.settings import Drawing
from multimdm.evaluation.trajectory import trajectory
from multimdm.models import DiT, DiTConfig
from multimdm.objectives import Batch, Candi
from multimdm.pipeline import Model
from multimdm.pipeline.settings import describe_process, same_process
from multimdm.process import Hybrid, Schedule, Streams
from multimdm.samplers.trace import CLEAN, DESIGNATED
from support.roots import Roots
from support.tiny_models import TALES

V, LENGTH, WIDTH = TALES.vocab_size, 48, 16
STORY = TALES.sample(1, Streams.spawn(0, 1))[0]


def model(process: Hybrid | None = None) -> Model:
    process = Hybrid(V, ranks=(0.05, 0.25), noise_dim=WIDTH) if process is None else process
    config = DiTConfig(
        V,
        1,
        hidden_dim=WIDTH,
        num_blocks=1,
        num_heads=2,
        cond_dim=8,
        max_length=LENGTH,
        dropout=0.5,
        embedding_norm=4.0,
    )
    network = DiT(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in network.parameters():
            weights.normal_(0.0, 0.3, generator=generator)
    return Model(network, process, tales_tokenizer(TALES))


def test_it_is_saved_and_loaded(tmp_path: Path):
    ours = model(Hybrid(V, Schedule(kind="cosine"), (0.02, 0.3), WIDTH))
    ours.save(tmp_path / "model")
    theirs = multimdm.load(tmp_path / "model")
    assert isinstance(theirs.process, Hybrid)
    assert same_process(ours.process, theirs.process)
    assert theirs.process.ranks == (0.02, 0.3)
    assert theirs.process.noise_dim == WIDTH
    assert torch.equal(ours.sample(num=3, seed=5).ids, theirs.sample(num=3, seed=5).ids)


def test_processes_that_differ():
    one = Hybrid(V)
    assert same_process(one, Hybrid(V))
    for other in (Hybrid(V, ranks=(0.05, 0.25)), Hybrid(V, Schedule(kind="cosine")), Hybrid(V, noise_dim=8), None):
        assert not same_process(one, other)
    assert describe_process(one).kind == "hybrid"


@pytest.mark.parametrize("steps", [1, 4])
def test_samples_take_k_calls_and_do_not_depend_on_the_batch(steps):
    ours = model()
    whole = ours.sample(num=5, steps=steps, seed=3)
    assert whole.nfe == steps
    assert len(whole.texts) == 5
    assert int(whole.ids.max()) < V
    assert torch.equal(whole.ids, ours.sample(num=5, steps=steps, seed=3, batch_size=2).ids)
    assert torch.equal(whole.ids[3:], ours.sample(num=2, steps=steps, seed=3, first=3).ids)
    assert not torch.equal(whole.ids, ours.sample(num=5, steps=steps, seed=4).ids)


def test_all_steps_and_batches_share_one_root_of_the_embeddings():
    with Roots() as roots:
        model().sample(num=5, steps=4, batch_size=2)
    assert roots.made == 1


def test_temperature_zero_and_options():
    ours = model()
    assert torch.equal(ours.sample(num=2, temperature=0, seed=1).ids, ours.sample(num=2, top_k=1, seed=1).ids)
    without = ours.sample(num=4, exclude_tokens=tuple(range(10)), grid="cosine", greedy_last=True, steps=3)
    assert int(without.ids.min()) >= 10


def test_given_tokens_stay():
    ours, words = model(), tales_tokenizer(TALES).decode(STORY[:6].tolist())
    made = ours.complete(words, num=2, steps=2)
    assert torch.equal(made.ids[:, :6], STORY[:6].expand(2, -1))
    filled = ours.infill(f"{words} [MASK] [MASK]", steps=2)
    assert filled.ids.shape == (1, 8)
    assert torch.equal(filled.ids[0, :6], STORY[:6])


@pytest.mark.parametrize("options", [{"order": "confidence"}, {"corrector": 0.1}, {"temperature_on": "posterior"}])
def test_other_samplers_are_refused(options):
    with pytest.raises(ValueError, match="order, corrector and temperature_on are for discrete processes"):
        model().sample(num=1, **options)


def test_traces_show_what_is_hidden():
    ours = model()
    trace = ours.sample(num=2, steps=3, trace=True).trace
    assert trace is not None
    assert isinstance(ours.process, Hybrid)
    kinds = trace.kinds(ours.process)
    assert bool((kinds[0] == DESIGNATED).all())
    assert bool((kinds[-1] == CLEAN).all())
    path = trajectory(ours, 3, Drawing(num=1))
    assert path is not None
    assert set(path.words[0]) == {""}


def test_the_validation_loss_is_the_training_loss():
    ours = model()
    assert isinstance(ours.process, Hybrid)
    ours.network.eval()
    ids, times = TALES.sample(6, Streams.spawn(1, 6)), torch.linspace(0.1, 0.9, 6, dtype=torch.float64)
    sums = nelbo_sums(ours.network, ours.process, ids, None, times[None], Streams.spawn(2, 6))
    with torch.no_grad():
        loss = Candi(ours.process)(ours.network, Batch(ids, None, times, Streams.spawn(2, 6))).loss
    estimate = sums.estimate(ours.process)
    assert estimate.total == pytest.approx(float(loss) / ids.numel(), rel=1e-6)
    assert estimate.identification == 0
    assert not estimate.bound


def test_it_is_measured_like_the_others():
    figures = measure(model(), None, 3, 1.0, Drawing(num=8))
    assert figures.nfe == 3
    assert figures.valid_sentences is not None
