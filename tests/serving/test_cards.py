"""/v1/models tells what a model is, and nothing about the machine that it lies on."""

import json
from dataclasses import replace

import pytest

from multimdm.process import Uniform
from multimdm.samplers import SamplingAdvice
from multimdm.serving.cards import card_of
from multimdm.serving.catalog import ServedModel
from support.live_server import serving
from support.tiny_models import causal_tales_model, shown_tales_model, tales_model, tiny_dit

LINEAGE = (
    {"imported": "mdlm", "from": "/home/me/secret/mdlm-owt", "weights": "ema"},
    {
        "command": "couple",
        "name": "tales-quantile",
        "steps": 70,
        "recipe": {
            "init": "/home/me/secret/start/model",
            "data": {"kind": "prepared", "path": "/home/me/secret/book"},
            "train": {"batch_size": 32, "seed": 5},
            "quantile": {"teacher": "../secret/tales-ar/model"},
        },
    },
)


def test_a_server_gives_the_card_of_each_model():
    advised = replace(shown_tales_model(SamplingAdvice(order="confidence", temperature=0)), lineage=LINEAGE)
    with serving(
        {"advised": ServedModel.of("advised", advised), "plain": ServedModel.of("plain", tales_model())}
    ) as live:
        listed = {one["id"]: one for one in live.send("GET", "/v1/models").data["data"]}
        alone = live.send("GET", "/v1/models/advised").data
    assert alone == listed["advised"]
    card = alone["multimdm"]["card"]
    assert card["kind"] == "multi-mask diffusion, M = 3, rho = 1, x_1 kept"
    size = sum(weights.numel() for weights in advised.network.parameters())
    shape = {"blocks": 1, "width": 32, "heads": 2, "parameters": size, "dtypes": ["float32"]}
    assert card["network"] == {"type": "dit", **shape}
    assert card["process"] == {
        "type": "MultiMask",
        "alpha": "linear",
        "rho": 1.0,
        "tied_noise": True,
        "noise_shown": True,
    }
    assert card["tokenizer"]["tokens"] == 404
    assert len(card["tokenizer"]["fingerprint"]) == 64
    assert card["advice"] == {"order": "confidence", "temperature": 0}
    assert card["lineage"] == [
        {"command": "import", "imported": "mdlm"},
        {
            "command": "couple",
            "recipe": "tales-quantile",
            "data": "book",
            "teacher": "tales-ar",
            "steps": 70,
            "batch_size": 32,
            "seed": 5,
        },
    ]
    assert "secret" not in json.dumps(alone)
    assert listed["plain"]["multimdm"]["card"]["advice"] == {}


def test_other_kinds():
    uniform = card_of(replace(tales_model(), network=tiny_dit(404, 0, 8), process=Uniform(404), tokenizer=None))
    assert uniform["process"] == {"type": "Uniform", "alpha": "linear"}
    assert uniform["tokenizer"] is None
    assert card_of(causal_tales_model())["process"] is None


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("org/name", "org/name"),
        ("bpe:4096", "bpe:4096"),
        ("/a/b/c", "c"),
        ("runs/x/model", "x"),
        ("./model", "model"),
        ("C:\\Users\\me\\book", "book"),
        ("~/book", "book"),
        ("/", ""),
        ("a\x1b[31m", "a\\x1b[31m"),
        ("n" * 500, "n" * 200),
    ],
)
def test_names_tell_no_places(name, shown):
    model = replace(tales_model(), lineage=({"command": "pretrain", "name": name},))
    assert card_of(model)["lineage"] == [{"command": "pretrain", "recipe": shown}]


@pytest.mark.parametrize("odd", [{"recipe": 3}, {"recipe": {"data": [], "train": None}}, {"steps": {"a": 1}}, {}])
def test_odd_lineages_of_strangers_are_no_error(odd):
    model = replace(tales_model(), lineage=({"command": "pretrain", **odd},))
    assert card_of(model)["lineage"] == [{"command": "pretrain"}]
