"""The model card: what the lineage tells, and nothing else."""

from dataclasses import replace

import pytest
import yaml
from huggingface_hub import ModelCard, ModelCardData

from multimdm.models.llada_config import Adapter
from multimdm.pipeline import Model
from multimdm.pipeline.card import CardDetails, model_card
from multimdm.process import MultiMask
from multimdm.samplers import SamplingAdvice
from support.tiny_llada import VOCABULARY, tiny_llada
from support.tiny_models import causal_tales_model, shown_tales_model, tales_model

PRETRAIN = {
    "command": "pretrain",
    "name": "first",
    "steps": 300,
    "recipe": {"data": {"kind": "tales"}, "train": {"batch_size": 32, "learning_rate": 2e-3, "seed": 11}},
}
COUPLE = {
    "command": "couple",
    "name": "second",
    "steps": 70,
    "recipe": {
        "data": {"kind": "prepared", "path": "data/mine"},
        "train": {"batch_size": 10},
        "init": "runs/first/model",
        "quantile": {"teacher": "org/teacher"},
    },
}


def front_matter(text: str) -> ModelCardData:
    """As the Hub's own client reads it."""
    data = ModelCard(text).data
    assert isinstance(data, ModelCardData)
    return data


def test_the_front_matter_is_what_the_hub_reads():
    text = model_card(tales_model(), "org/name", CardDetails("apache-2.0", ("en", "de")))
    data = front_matter(text)
    assert data.library_name == "multimdm"
    assert data.pipeline_tag == "text-generation"
    assert data.license == "apache-2.0"
    assert data.language == ["en", "de"]
    assert "multi-mask-diffusion" in (data.tags or [])


def test_what_is_not_known_is_not_said():
    text = model_card(tales_model(), "org/name")
    data = front_matter(text)
    assert data.license is None
    assert data.language is None
    assert "Licence" not in text
    assert "Its checkpoint does not say." in text
    assert "None were given when this card was written." in text


def test_how_it_was_made_and_wants_to_be_sampled():
    model = shown_tales_model(SamplingAdvice(order="rewrite", temperature=0.5))
    model = replace(model, lineage=({"imported": "mdlm", "from": "old.ckpt", "weights": "as stored"}, PRETRAIN, COUPLE))
    text = model_card(model, "org/name", CardDetails(figures="| measured |"))
    assert "1. Imported from `old.ckpt`, a checkpoint of mdlm; weights: as stored." in text
    first = "data `tales`; 300 steps of 32 sequences, 9,600 in all; learning rate 0.002; seed 11."
    assert f"2. `multimdm pretrain`, recipe `first`: {first}" in text
    second = "from `runs/first/model`; data `data/mine`; 70 steps of 10 sequences, 700 in all; teacher `org/teacher`."
    assert f"3. `multimdm couple`, recipe `second`: {second}" in text
    assert "- order: `rewrite`\n- temperature: `0.5`\n\n" in text
    assert "## Figures\n\n| measured |\n" in text
    recipes = text.split("```yaml\n")[1].split("```")[0]
    assert yaml.safe_load(recipes) == list(model.lineage)


def test_it_is_loaded_in_three_lines():
    text = model_card(causal_tales_model(), "org/name", revision="dev")
    lines = text.split("```python\n")[1].split("\n```")[0].splitlines()
    assert lines == ["import multimdm", 'model = multimdm.load("org/name@dev")', "print(model.sample(num=2).texts)"]
    assert 'AutoModel.from_pretrained("org/name", revision="dev")' in text
    assert "autoregressive" in (front_matter(text).tags or [])


@pytest.mark.parametrize(("base", "named"), [("GSAI-ML/LLaDA-8B-Base", True), ("/somewhere/here", False)])
def test_llada_and_its_base(base, named):
    network = tiny_llada()
    model = Model(network, MultiMask(VOCABULARY, 1))
    assert "transformers" not in model_card(model, "org/name")
    network.adapter = Adapter(base=base)
    assert front_matter(model_card(model, "org/name")).base_model == (base if named else None)
