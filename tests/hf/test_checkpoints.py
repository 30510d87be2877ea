"""Our checkpoints in transformers and back: the same files, byte for byte."""

import importlib
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoTokenizer

import multimdm
from multimdm.hf import MultiMDMConfig, MultiMDMForLLaDA, MultiMDMModel
from multimdm.pipeline import Model
from multimdm.pipeline.exchange import import_checkpoint
from multimdm.process import Hybrid, MultiMask, Schedule, Uniform, random_balanced
from multimdm.samplers import SamplingAdvice
from support.hub_stand_in import hub_stand_in
from support.tiny_adapter import adapted
from support.tiny_llada import VOCABULARY, chat_tokenizer, tiny_llada, write_llada
from support.tiny_models import causal_tales_model, shown_tales_model, tales_model, tiny_dit

GOLDEN = Path(__file__).parents[1] / "golden"
V = 11


def of(process) -> Model:
    return Model(tiny_dit(process.vocab_size, process.num_masks, 8), process)


MODELS = {
    "many masks": tales_model,
    "kept noise": lambda: replace(
        shown_tales_model(SamplingAdvice(order="rewrite")), cell_order=torch.arange(404).flip(0), lineage=({"a": 1},)
    ),
    "autoregressive": causal_tales_model,
    "uniform": lambda: of(Uniform(V)),
    "hybrid": lambda: of(Hybrid(V)),
    "own assignment": lambda: of(MultiMask(V, 3, Schedule(0.5, "cosine"), random_balanced(V, 3, seed=1))),
    "imported": lambda: import_checkpoint(GOLDEN / "duo_dit", "duo"),
}


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_round_trips_are_byte_equal(make, tmp_path):
    make().save(tmp_path / "ours")
    AutoModel.from_pretrained(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    assert contents(tmp_path / "theirs") == contents(tmp_path / "ours")
    multimdm.load(tmp_path / "theirs").save(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(tmp_path / "ours")


def test_the_configuration_has_the_usual_names(tmp_path):
    tales_model().save(tmp_path / "ours")
    config = AutoConfig.from_pretrained(tmp_path / "ours")
    assert isinstance(config, MultiMDMConfig)
    sizes = config.vocab_size, config.num_masks, config.hidden_size, config.num_hidden_layers
    assert sizes == (404, 3, 32, 1)
    assert (config.num_attention_heads, config.max_position_embeddings) == (2, 48)
    config.save_pretrained(tmp_path / "theirs")
    assert contents(tmp_path / "theirs")["config.json"] == contents(tmp_path / "ours")["config.json"]
    assert MultiMDMConfig().model_type == "multimdm"


def test_random_weights_from_a_configuration(tmp_path):
    tales_model().save(tmp_path / "ours")
    model = AutoModel.from_config(AutoConfig.from_pretrained(tmp_path / "ours"))
    assert model.num_parameters() == sum(x.numel() for x in tales_model().network.parameters())
    assert torch.equal(model.network.output_layer.linear.weight, torch.zeros(404, 32))  # a new one's


def test_old_checkpoints_have_no_model_type(tmp_path):
    tales_model().save(tmp_path / "old")
    settings = json.loads((tmp_path / "old" / "config.json").read_text())
    assert settings.pop("model_type") == "multimdm"
    (tmp_path / "old" / "config.json").write_text(json.dumps(settings))
    assert multimdm.load(tmp_path / "old").tokenizer is not None
    assert MultiMDMModel.from_pretrained(tmp_path / "old").tokenizer is not None


def test_saving_leaves_other_files_alone(tmp_path):
    MODELS["kept noise"]().save(tmp_path / "place")
    (tmp_path / "place" / "notes.txt").write_text("mine")
    MultiMDMModel.from_model(tales_model()).save_pretrained(tmp_path / "place")
    tales_model().save(tmp_path / "ours")
    assert contents(tmp_path / "place") == {**contents(tmp_path / "ours"), "notes.txt": b"mine"}
    with pytest.raises(ValueError, match="save_directory must be a directory"):
        MultiMDMModel.from_model(tales_model()).save_pretrained(tmp_path / "place" / "notes.txt")


def test_tokenizers_beside_the_model(tmp_path):
    model = replace(tales_model(), tokenizer=chat_tokenizer("{{ messages[0]['content'] }}"))
    model.save(tmp_path / "ours")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "ours")
    text = "abc = 12"
    assert theirs(text)["input_ids"] == chat_tokenizer().encode(text)
    assert theirs.decode(theirs(text)["input_ids"]) == text
    assert theirs.eos_token_id == chat_tokenizer().eos_id
    AutoModel.from_pretrained(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    theirs.save_pretrained(tmp_path / "theirs")
    back = multimdm.load(tmp_path / "theirs").tokenizer
    assert back is not None
    assert back.encode(text) == chat_tokenizer().encode(text)
    assert back.chat_template == "{{ messages[0]['content'] }}"
    config = json.loads((tmp_path / "theirs" / "tokenizer_config.json").read_text())
    del config["multimdm_name"]
    (tmp_path / "theirs" / "tokenizer_config.json").write_text(json.dumps(config))
    foreign = multimdm.load(tmp_path / "theirs").tokenizer
    assert foreign is not None
    assert foreign.encode(text) == chat_tokenizer().encode(text)


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of the Hub's client
def test_on_the_hub(monkeypatch, tmp_path):
    with hub_stand_in(monkeypatch, tmp_path / "cache"):
        first = MultiMDMModel.from_model(tales_model(seed=1))
        first.push_to_hub("org/name", private=True)
        first.model.push_to_hub("org/name", revision="dev")
        MultiMDMModel.from_model(tales_model(seed=2)).save_pretrained(
            tmp_path / "here", push_to_hub=True, repo_id="org/name", commit_message="second"
        )
        fetched = [AutoModel.from_pretrained("org/name", revision=revision) for revision in ("dev", None)]
        wanted = [tales_model(seed=seed).sample(2, 8, steps=2, seed=3).ids for seed in (1, 2)]
        for model, ids in zip(fetched, wanted, strict=True):
            assert torch.equal(model.generate(num_return_sequences=2, max_length=8, steps=2, seed=3), ids)
        assert AutoTokenizer.from_pretrained("org/name").vocab_size == 404


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of the Hub's client
@pytest.mark.parametrize("name", ["many masks", "kept noise", "own assignment"])
def test_the_whole_round_is_byte_equal(name, monkeypatch, tmp_path):
    """Ours, the Hub, transformers, the Hub again, ours."""
    with hub_stand_in(monkeypatch, tmp_path / "cache") as hub:
        model = MODELS[name]()
        model.save(tmp_path / "ours")
        model.push_to_hub("one/name")
        fetched = AutoModel.from_pretrained("one/name")
        fetched.save_pretrained(tmp_path / "theirs")
        fetched.push_to_hub("two/name")
        multimdm.load("two/name").save(tmp_path / "again")
        for place in ("theirs", "again"):
            assert contents(tmp_path / place) == contents(tmp_path / "ours")
        one, two = (hub.repositories[repo].files("main") for repo in ("one/name", "two/name"))
        assert one is not None
        assert two is not None
        card = one.pop("README.md").replace(b"one/name", b"two/name")
        assert two.pop("README.md") == card
        assert one == two == contents(tmp_path / "ours")


def test_llada_without_foreign_code(tmp_path):
    write_llada(tmp_path / "published", tiny_llada(), chat_tokenizer(), auto_map={"AutoModel": "modeling_llada.LLaDA"})
    model = AutoModel.from_pretrained(tmp_path / "published")
    assert isinstance(model, MultiMDMForLLaDA)
    ids = torch.tensor([[5, 6, 7]])
    assert torch.equal(model(ids).logits, tiny_llada()(ids))
    model.save_pretrained(tmp_path / "saved")
    weights = "model.safetensors"
    assert (tmp_path / "saved" / weights).read_bytes() == (tmp_path / "published" / weights).read_bytes()
    assert model.generate(ids, max_new_tokens=4, steps=2).shape == (1, 7)


def test_an_adapter_is_not_left_off(tmp_path):
    """AutoModel takes a directory with adapter_config.json for one of peft's, and goes to its base."""
    base = write_llada(tmp_path / "base", tiny_llada(), chat_tokenizer())
    model = adapted(base)
    model.save(tmp_path / "adapter")
    ids, gaps = torch.tensor([[5, 6, 7]]), torch.tensor([[5, VOCABULARY, VOCABULARY + 3]])
    wanted = model.network(gaps)
    assert not torch.equal(model.network(ids), tiny_llada()(ids))
    for opened in (AutoModel, MultiMDMForLLaDA):
        held = opened.from_pretrained(tmp_path / "adapter")
        assert torch.equal(held(gaps).logits, wanted)
        held.save_pretrained(tmp_path / opened.__name__)
        assert contents(tmp_path / opened.__name__) == contents(tmp_path / "adapter")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attn_implementation": "flash_attention_2"}, "from_pretrained has no option 'attn_implementation'"),
        ({"device_map": {"a": 0, "b": 1}}, "device_map must be one device, such as 'cuda' or 'auto'"),
        ({"load_in_8bit": True}, "from_pretrained has no option 'load_in_8bit'"),
    ],
)
def test_what_cannot_be_done_is_said(options, message, tmp_path):
    tales_model().save(tmp_path / "ours")
    with pytest.raises(ValueError, match=message):
        MultiMDMModel.from_pretrained(tmp_path / "ours", **options)


def test_precision_and_device(tmp_path):
    tales_model().save(tmp_path / "ours")
    for dtype in (torch.bfloat16, "bfloat16"):
        model = AutoModelForMaskedLM.from_pretrained(tmp_path / "ours", dtype=dtype, device_map="cpu")
        assert model.dtype == torch.bfloat16
        assert model.device == torch.device("cpu")
    model = AutoModel.from_pretrained(tmp_path / "ours")
    for change in (model.bfloat16, model.half, model.double, model.float):
        assert change() is model
        ids = model.generate(torch.tensor([[5, 6]]), max_new_tokens=3, steps=2, seed=0)
        assert ids.shape == (1, 5)
        assert int(ids.max()) < 404


def test_without_transformers_it_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("multimdm.hf")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"multimdm.hf needs the package transformers: pip install 'multimdm\[hf\]'"):
        importlib.import_module("multimdm.hf")


def test_directories_move_between_the_two(tmp_path):
    """What transformers wrote is sampled by us alike, and after a move too."""
    tales_model().save(tmp_path / "ours")
    model = AutoModel.from_pretrained(tmp_path / "ours")
    model.save_pretrained(tmp_path / "theirs")
    shutil.move(tmp_path / "theirs", tmp_path / "moved")
    ids = multimdm.load(tmp_path / "moved").sample(2, 8, steps=3, seed=4).ids
    assert torch.equal(ids, model.generate(num_return_sequences=2, max_length=8, steps=3, seed=4))
