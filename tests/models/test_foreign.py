"""MDLM's and DUO's networks: golden logits after import, equal tensors after export."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from multimdm.models.foreign import export_settings, export_tensors, import_tensors, strip_wrappers

GOLDEN = Path(__file__).parents[1] / "golden"
SETTINGS: dict[str, Any] = {"model_length": 16, "dropout": 0.1}
KINDS = pytest.mark.parametrize("kind", ["mdlm", "duo"])


def tensors(kind: str) -> dict[str, torch.Tensor]:
    return load_file(GOLDEN / f"{kind}_dit" / "model.safetensors")


def columns(vocab: int, mask: int | None) -> torch.Tensor:
    """The columns that both networks predict."""
    return torch.tensor([j for j in range(vocab) if j != mask])


@KINDS
def test_golden_logits(kind):
    expected = load_file(GOLDEN / f"{kind}_dit" / "expected.safetensors")
    foreign = import_tensors(tensors(kind), kind, SETTINGS | {"time_conditioning": True})
    logits = foreign.network(expected["input_ids"], -torch.expm1(-expected["sigma"]))
    shared = columns(101, foreign.mask_id)
    torch.testing.assert_close(logits[..., shared], expected["logits"][..., shared], atol=1e-4, rtol=0)
    again = import_tensors(export_tensors(foreign), kind, SETTINGS | {"time_conditioning": True})
    torch.testing.assert_close(again.network(expected["input_ids"], -torch.expm1(-expected["sigma"])), logits)


def test_mdlm_conditions_on_nothing():
    expected = load_file(GOLDEN / "mdlm_dit" / "expected.safetensors")
    foreign = import_tensors(tensors("mdlm"), "mdlm", SETTINGS)
    assert foreign.network.config.conditioning == "none"
    logits = foreign.network(expected["input_ids"][:1], 0.7)
    torch.testing.assert_close(logits, expected["logits"][:1, :, :100], atol=1e-4, rtol=0)


def test_a_mask_inside_the_vocabulary_keeps_the_ids():
    """As BERT's 103: the mask's row moves behind the vocabulary, and its column is never predicted."""
    expected = load_file(GOLDEN / "mdlm_dit" / "expected.safetensors")
    foreign = import_tensors(tensors("mdlm"), "mdlm", SETTINGS, mask_id=7)
    assert (foreign.network.config.vocab_size, foreign.network.config.suppressed) == (101, (7,))
    ids = torch.where(expected["input_ids"][:1] == 7, 101, expected["input_ids"][:1])
    logits = foreign.network(ids)
    torch.testing.assert_close(
        logits[..., columns(101, 7)], expected["logits"][:1, :, columns(101, 7)], atol=1e-4, rtol=0
    )
    assert bool((logits[..., 7] == -torch.inf).all())
    back = export_tensors(foreign)
    assert all(torch.equal(back[name], tensor) for name, tensor in tensors("mdlm").items())


@KINDS
def test_export_gives_back_equal_tensors(kind):
    foreign, original = import_tensors(tensors(kind), kind, SETTINGS), tensors(kind)
    back = export_tensors(foreign)
    assert back.keys() == original.keys()
    for name, tensor in original.items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name], tensor)
    settings = export_settings(foreign)
    assert (settings["vocab_size"], settings["n_blocks"], settings["n_heads"]) == (101, 2, 4)


@pytest.mark.parametrize(
    "name", ["backbone.blocks.0.x", "backbone.backbone.blocks.0.x", "_orig_mod.backbone.blocks.0.x"]
)
def test_wrappers_are_stripped(name):
    assert strip_wrappers(name) == "blocks.0.x"


def without(name: str) -> dict[str, torch.Tensor]:
    return {key: x for key, x in tensors("mdlm").items() if not key.endswith(name)}


BAD = {
    "missing": (without("blocks.1.mlp.2.bias"), "lacks 1 tensors, the first is 'blocks.1.mlp.2.bias'"),
    "extra": (tensors("mdlm") | {"backbone.extra": torch.zeros(1)}, "1 tensors too many, the first is 'extra'"),
    "misshapen": (
        tensors("mdlm") | {"backbone.blocks.0.norm1.weight": torch.zeros(3)},
        r"'blocks.0.norm1.weight' has shape \[3\]; the network needs \[64\]",
    ),
    "a wider head": (
        tensors("mdlm") | {"backbone.output_layer.linear.weight": torch.zeros(104, 64)},
        r"'output_layer.linear.weight' has shape \[104, 64\]; the network needs \[101, 64\]",
    ),
    "a shorter bias": (
        tensors("mdlm") | {"backbone.output_layer.linear.bias": torch.zeros(8)},
        r"'output_layer.linear.bias' has shape \[8\]; the network needs \[101\]",
    ),
    "no frequencies": (tensors("mdlm") | {"backbone.rotary_emb.inv_freq": torch.zeros(0)}, "has 0 frequencies"),
    "the same twice": (
        tensors("mdlm") | {"model.backbone.blocks.0.norm1.weight": torch.zeros(64)},
        "tensor 'blocks.0.norm1.weight' twice",
    ),
    "another network": ({"conv.weight": torch.zeros(1)}, "no tensor 'vocab_embed.embedding': it is not a mdlm network"),
}


@pytest.mark.parametrize(("state", "message"), BAD.values(), ids=BAD)
def test_bad_checkpoints_are_named(state, message):
    with pytest.raises(ValueError, match=message):
        import_tensors(state, "mdlm", SETTINGS)


def test_bad_mask_ids():
    with pytest.raises(ValueError, match=r"mask_id must lie in 0\.\.100; got 101"):
        import_tensors(tensors("mdlm"), "mdlm", SETTINGS, mask_id=101)
    with pytest.raises(ValueError, match="mask_id must not be given for kind 'duo'"):
        import_tensors(tensors("duo"), "duo", SETTINGS, mask_id=100)


def test_half_precision_comes_back_as_it_was():
    original = {name: x.bfloat16() for name, x in tensors("mdlm").items()}
    foreign = import_tensors(original, "mdlm", SETTINGS)
    assert foreign.network.output_layer.linear.weight.dtype == torch.float32
    back = export_tensors(foreign)
    assert all(back[name].dtype == x.dtype and torch.equal(back[name], x) for name, x in original.items())
