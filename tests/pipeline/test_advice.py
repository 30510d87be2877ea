"""A checkpoint says how it wants to be sampled: saved, loaded, followed, and overruled by whatever is said."""

import json

import pytest
import torch

from multimdm import load
from multimdm.pipeline import Model
from multimdm.process import MultiMask
from multimdm.samplers import SamplingAdvice
from support.tiny_models import shown_tales_model, tales_model, tiny_dit

ADVICE = SamplingAdvice(order="left_to_right", temperature=0, threshold=0.3, steps=5)


@pytest.fixture
def path(tmp_path):
    shown_tales_model(ADVICE, length=12).save(tmp_path / "model")
    return tmp_path / "model"


def test_advice_is_saved_and_loaded(path):
    assert load(path).advice == ADVICE
    stored = json.loads((path / "config.json").read_text())["advice"]
    given = {"order": "left_to_right", "temperature": 0, "threshold": 0.3, "steps": 5}
    assert stored == {**given, "grid": None, "prompts": None}


def test_older_checkpoints_have_none(path):
    config = json.loads((path / "config.json").read_text())
    del config["advice"]
    (path / "config.json").write_text(json.dumps(config))
    assert load(path).advice is None


def test_advice_is_followed(path):
    advised, plain = load(path), shown_tales_model(length=12)
    settings = {"steps": 5, "temperature": 0, "order": "left_to_right", "threshold": 0.3}
    story = advised.sample(1).texts[0]
    begun = " ".join(story.split()[:3])
    for one, other in (
        (advised.sample(3), plain.sample(3, **settings)),
        (advised.complete(begun, 2), plain.complete(begun, 2, **settings)),
        (advised.infill(f"{begun} [MASK] [MASK]"), plain.infill(f"{begun} [MASK] [MASK]", **settings)),
    ):
        assert torch.equal(one.ids, other.ids)
        assert one.sampling == other.sampling


def test_whatever_is_said_wins(path):
    advised, plain = load(path), shown_tales_model(length=12)
    for said in (
        {"steps": 2, "temperature": 1.0, "order": "ancestral"},
        {"steps": 4, "temperature": 0.5, "order": "rewrite"},
        {"steps": 3, "temperature": 0, "grid": "cosine"},
    ):
        assert torch.equal(advised.sample(3, **said).ids, plain.sample(3, **said).ids)
    assert advised.sample(2, temperature=None, order=None, grid=None).sampling == advised.sample(2).sampling


def test_every_order_with_prompts_gaps_and_traces():
    model = shown_tales_model(length=12)
    story = model.sample(1, temperature=0).texts[0].split()
    for order in ("confidence", "left_to_right", "rewrite"):
        named = {"order": order, "steps": 4, "top_k": 5, "exclude_tokens": (0, 1), "trace": True}
        for made in (model.sample(2, **named), model.complete(story[0], 2, **named)):
            assert made.trace is not None
            assert torch.equal(made.trace.states[-1], made.ids)
            assert int(made.ids.min()) > 1
            assert made.nfe <= 4


def test_what_does_not_fit_the_process_is_refused(tmp_path):
    for order in ("rewrite", "confidence"):
        advised = tales_model(length=8)
        advised.advice = SamplingAdvice(order=order)
        advised.save(tmp_path / order)
    assert load(tmp_path / "confidence").sample(1).nfe == 4
    with pytest.raises(ValueError, match=r"advice: order='rewrite' is for a model that is shown its noise"):
        load(tmp_path / "rewrite")
    bare = Model(tiny_dit(5, 2, 8), MultiMask(5, 2, tied_noise=True))
    with pytest.raises(ValueError, match=r"order='rewrite' is for .* got MultiMask\(.*: use another order"):
        bare.sample(order="rewrite")


def test_a_stranger_in_the_advice_is_named(path):
    config = json.loads((path / "config.json").read_text())
    for change, message in (({"ordr": "rewrite"}, "advice.ordr"), ({"temperature": -1}, "temperature must be 0")):
        (path / "config.json").write_text(json.dumps({**config, "advice": change}))
        with pytest.raises(ValueError, match=message):
            load(path)
