"""LLaDA checkpoints: read as published, lazily; adapters small, and identical after a round trip."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import multimdm
from multimdm.models import LLaDA
from multimdm.models.lora import merge, trained_names
from multimdm.pipeline import Model
from multimdm.pipeline.mask_settings import MaskSettings, describe_masks
from multimdm.pipeline.settings import dump, read_as
from multimdm.process import MultiMask
from multimdm.samplers import SamplingAdvice
from support.runs import environment
from support.tiny_adapter import M, adapted
from support.tiny_llada import (
    MASK,
    SPARE,
    VOCABULARY,
    chat_tokenizer,
    files_hash,
    llada_of,
    masks_of,
    tiny_config,
    tiny_llada,
    write_llada,
)


def inputs(masks: int = 1) -> torch.Tensor:
    return torch.randint(0, VOCABULARY + masks, (2, 12), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_llada(tmp_path / "base", tiny_llada(), chat_tokenizer(), shard_bytes=20_000)


@torch.no_grad()
def test_shards_give_the_network(base):
    assert len(list(base.glob("model-*-of-*.safetensors"))) > 2
    model = multimdm.load(base)
    assert torch.equal(model.network(inputs()), tiny_llada()(inputs()))
    assert isinstance(model.process, MultiMask)
    assert (model.process.vocab_size, model.process.num_masks) == (VOCABULARY, 1)
    assert model.network.config.suppressed == (MASK,)
    assert multimdm.load(base, precision="bfloat16").network(inputs()).dtype == torch.bfloat16


def test_bfloat16_files_stay_so_or_are_widened(tmp_path):
    base = write_llada(tmp_path / "base", tiny_llada().to(torch.bfloat16))
    kept, widened = multimdm.load(base), multimdm.load(base, precision="float32")
    for model, dtype in ((kept, torch.bfloat16), (widened, torch.float32)):
        assert {x.dtype for x in model.network.parameters()} == {dtype}


@torch.no_grad()
def test_saved_and_loaded(base, tmp_path):
    model = multimdm.load(base)
    model.save(tmp_path / "copy")
    again = multimdm.load(tmp_path / "copy")
    assert torch.equal(again.network(inputs()), model.network(inputs()))
    assert again.tokenizer is not None
    assert again.tokenizer.fingerprint == chat_tokenizer().fingerprint


@torch.no_grad()
@pytest.mark.parametrize("place", ["reserved", "appended"])
def test_adapter_round_trip(base, tmp_path, place):
    before, model = files_hash(base), adapted(base, place)
    x_t = inputs(M)
    expected = model.network(x_t)
    model.save(tmp_path / "adapter")
    assert files_hash(base) == before
    fresh = multimdm.load(tmp_path / "adapter")
    assert torch.equal(fresh.network(x_t), expected)
    assert isinstance(fresh.process, MultiMask)
    assert isinstance(model.process, MultiMask)
    assert torch.equal(fresh.process.assignment, model.process.assignment)
    assert fresh.process.schedule == model.process.schedule
    assert fresh.lineage == model.lineage
    known = expected[0, 0].isfinite()
    merged = Model(merge(llada_of(fresh)), fresh.process)
    torch.testing.assert_close(merged.network(x_t)[..., known], expected[..., known], atol=1e-4, rtol=1e-4)
    merged.save(tmp_path / "merged")
    whole = multimdm.load(tmp_path / "merged")
    assert torch.equal(whole.network(x_t), merged.network(x_t))
    assert masks_of(whole).num_masks == M


def test_adapters_are_small_and_tell_what_they_are(base, tmp_path):
    model = adapted(base)
    model.save(tmp_path / "adapter")
    masks = json.loads((tmp_path / "adapter" / "masks.json").read_text())
    assert masks["mask_ids"] == [MASK, *SPARE]
    assert len(masks["assignment"]) == VOCABULARY
    assert (masks["rho"], masks["alpha"]) == (0.5, "cosine")
    learnt = sum(model.network.get_parameter(name).numel() for name in trained_names(llada_of(model)))
    assert (tmp_path / "adapter" / "adapter_model.safetensors").stat().st_size < 4 * learnt + 10_000
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    peft = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (peft["r"], peft["lora_alpha"]) == (2, 4.0)


def test_an_adapter_whose_base_moved(base, tmp_path):
    adapted(base).save(tmp_path / "adapter")
    moved = base.rename(tmp_path / "moved")
    with pytest.raises(ValueError, match=r"which is not here; say where it is"):
        multimdm.load(tmp_path / "adapter")
    assert multimdm.load(tmp_path / "adapter", base=moved).network.config.num_masks == M


def test_what_does_not_fit_is_named(base, tmp_path):
    adapted(base).save(tmp_path / "adapter")
    other = write_llada(tmp_path / "other", tiny_llada(vocab_size=44, num_rows=44))
    with pytest.raises(ValueError, match=r"was made for a vocabulary of 40 ids; .*other has 44"):
        multimdm.load(tmp_path / "adapter", base=other)
    stranger = write_llada(tmp_path / "stranger", tiny_llada(seed=1))
    with pytest.raises(ValueError, match=r"was trained on another base than .*stranger: their weights differ"):
        multimdm.load(tmp_path / "adapter", base=stranger)
    elsewhere = write_llada(tmp_path / "elsewhere", tiny_llada(mask_rows=(35,)))
    with pytest.raises(ValueError, match=r"was made for the mask 36; that of .*elsewhere is 35"):
        multimdm.load(tmp_path / "adapter", base=elsewhere)
    file = tmp_path / "adapter" / "masks.json"
    masks = json.loads(file.read_text())
    file.write_text(json.dumps({**masks, "mask_ids": masks["mask_ids"][:3], "assignment": "modulo"}))
    with pytest.raises(ValueError, match=r"speaks of M = 3 masks, adapter_model.safetensors has rows for 4"):
        multimdm.load(tmp_path / "adapter")
    file.write_text(json.dumps({**masks, "mask_idz": 3}))
    with pytest.raises(ValueError, match=r"masks.json: mask_idz: .*got 3"):
        multimdm.load(tmp_path / "adapter")
    with pytest.raises(ValueError, match=r"base must be left out: .* is a whole network"):
        multimdm.load(base, base=base)


def test_missing_shards_and_wrong_weights_are_named(base, tmp_path):
    broken = shutil.copytree(base, tmp_path / "broken")
    lost = sorted(broken.glob("model-*"))[1]
    lost.unlink()
    with pytest.raises(ValueError, match=rf"lacks 1 of \d+ files of weights: {lost.name}; fetch them again"):
        multimdm.load(broken)
    wrong = write_llada(tmp_path / "wrong", tiny_llada(), vocab_size=44, embedding_size=44)
    with pytest.raises(ValueError, match=r"wte.weight' has shape .* says .*: the weights are of another vocabulary"):
        multimdm.load(wrong)
    cut = write_llada(tmp_path / "cut", tiny_llada())
    data = (cut / "model.safetensors").read_bytes()
    (cut / "model.safetensors").write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match=r"is not a whole safetensors file"):
        multimdm.load(cut)
    deep = write_llada(tmp_path / "deep", tiny_llada(), n_layers=3)
    with pytest.raises(ValueError, match=r"deep has 2 blocks; its config\.json says 3"):
        multimdm.load(deep)
    small = write_llada(tmp_path / "small", tiny_llada(vocab_size=30, num_rows=30, mask_rows=(29,)), chat_tokenizer())
    with pytest.raises(ValueError, match=r"its tokenizer has 36 tokens, but its network only 30"):
        multimdm.load(small)


_LOADING = """
import resource, sys
import torch
import multimdm
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
network = multimdm.load(sys.argv[1], precision="float32").network
total = sum(float(x.detach().sum()) for x in network.parameters())
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def test_loading_makes_no_second_copy(tmp_path):
    """A checkpoint of 100 MB in many files takes about as much memory, not twice as much, and is then in use."""
    network = LLaDA(tiny_config(hidden_dim=1024, mlp_dim=6000))
    network.initialise()
    size = sum(x.numel() * 4 for x in network.parameters()) / 2**20
    assert size > 100
    base = write_llada(tmp_path / "base", network, shard_bytes=20 * 2**20)
    del network
    command = [sys.executable, "-c", _LOADING, str(base)]
    grown = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True).stdout
    assert float(grown) < 1.4 * size


def test_code_of_strangers_is_not_needed(tmp_path):
    """The Hub's directory names classes in files of its own; ours does not look at them."""
    base = write_llada(tmp_path / "base", tiny_llada(), auto_map={"AutoModel": "modeling_llada.LLaDAModelLM"})
    definition = chat_tokenizer()
    (base / "tokenizer.json").write_text(definition._definition)
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>"}
    (base / "tokenizer_config.json").write_text(json.dumps({**told, "chat_template": "{{ messages[0].content }}"}))
    tokenizer = multimdm.load(base).tokenizer
    assert tokenizer is not None
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.turn_ends) == (0, 1, (2,))
    assert tokenizer.chat_template == "{{ messages[0].content }}"


def test_masks_know_whether_their_noise_is_tied():
    """As their settings say; those of older checkpoints say nothing, and it is not."""
    process = MultiMask(VOCABULARY, M)
    written = dump(describe_masks(process.tied(), tuple(range(M)), None, ()))
    assert read_as(MaskSettings, written, "here").process().tied_noise
    del written["tied_noise"]
    assert not read_as(MaskSettings, written, "here").process().tied_noise


def test_masks_keep_advice():
    """Those of older checkpoints have none."""
    advice = SamplingAdvice(order="confidence", temperature=0, threshold=0.9)
    written = json.loads(json.dumps(dump(describe_masks(MultiMask(VOCABULARY, M), tuple(range(M)), None, (), advice))))
    assert read_as(MaskSettings, written, "here").advice == advice
    del written["advice"]
    assert read_as(MaskSettings, written, "here").advice is None
