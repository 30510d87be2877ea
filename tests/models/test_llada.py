"""LLaDA against the published code's logits, and the contract of every network."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy

from multimdm.models import LLaDA, Mixture
from multimdm.models.llada_config import published, read_published
from support.tiny_llada import MASK, VOCABULARY, tiny_config, tiny_llada

GOLDEN = Path(__file__).parents[1] / "golden" / "llada_tiny"
CONFIG = json.loads((GOLDEN / "config.json").read_text())


def golden() -> LLaDA:
    network = LLaDA(read_published(CONFIG, "config.json"), device="meta")
    state = {name.removeprefix("model.transformer."): x for name, x in load_file(GOLDEN / "model.safetensors").items()}
    network.load_state_dict(state, assign=True)
    return network.eval()


def inputs(length: int = 12, masks: int = 1) -> torch.Tensor:
    return torch.randint(0, VOCABULARY + masks, (3, length), generator=torch.Generator().manual_seed(1))


def test_golden_logits():
    expected, network = load_file(GOLDEN / "expected.safetensors"), golden()
    V, mask = network.config.vocab_size, CONFIG["mask_token_id"]
    x_t = torch.where(expected["input_ids"] == mask, V, expected["input_ids"])  # in the ids of the process
    assert bool((x_t == V).any())
    logits = network(x_t)
    shared = torch.arange(V) != mask
    torch.testing.assert_close(logits[..., shared], expected["logits"][..., shared], atol=1e-4, rtol=0)
    assert bool(logits[..., mask].isneginf().all())


def test_positions_reduce_and_features_agree_with_the_whole_table():
    network, x_t = tiny_llada(), inputs()
    whole, positions = network(x_t), torch.rand(x_t.shape, generator=torch.Generator().manual_seed(0)) < 0.4
    assert torch.equal(network(x_t, 0.3), whole)  # time is not seen
    torch.testing.assert_close(network(x_t, None, positions), whole[positions])
    packed = network(x_t, None, positions, None, lambda logits, rows: logits.argmax(-1))
    assert torch.equal(packed, whole[positions].argmax(-1))
    assert torch.equal(network.logits(network.features(x_t)), whole)


def test_padding_changes_nothing():
    network, x_t = tiny_llada(), inputs(12)
    valid = (torch.arange(12) < 9).expand(3, -1)
    torch.testing.assert_close(network(x_t, None, None, valid)[:, :9], network(x_t[:, :9]))


def test_a_mixture_of_one_id_is_the_id():
    network, x_t = tiny_llada(), inputs()
    one = Mixture(torch.ones(*x_t.shape, 1), x_t[..., None])
    torch.testing.assert_close(network(one), network(x_t))
    shared = Mixture(torch.nn.functional.one_hot(x_t, VOCABULARY + 1).float(), torch.arange(VOCABULARY + 1))
    torch.testing.assert_close(network(shared), network(x_t))


def test_gradients_with_and_without_recomputation_and_reduction():
    plain, reduced = tiny_llada().train(), tiny_llada().train()
    reduced.recompute = True
    x_t, clean = inputs(), inputs().clamp_max(VOCABULARY - 5).flatten()

    def loss(logits, rows):
        return cross_entropy(logits, clean[rows], reduction="sum")

    loss(plain(x_t).flatten(0, 1), slice(None)).backward()
    reduced(x_t, None, torch.ones_like(x_t, dtype=torch.bool), None, loss).backward()
    for one, other in zip(plain.parameters(), reduced.parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad, atol=1e-4, rtol=1e-4)


def test_a_frozen_head_gets_no_gradient():
    network = tiny_llada().train()
    network.ff_out.weight.requires_grad_(False)
    x_t = inputs()
    total = network(x_t, None, torch.ones_like(x_t, dtype=torch.bool), None, lambda logits, rows: logits[:, 0].sum())
    total.backward()
    assert network.ff_out.weight.grad is None
    assert network.wte.weight.grad is not None


@torch.no_grad()
def test_bfloat16_is_near():
    x_t, network = inputs(), tiny_llada()
    wide, narrow = network(x_t), tiny_llada().to(torch.bfloat16)(x_t)
    assert narrow.dtype == torch.bfloat16
    known = torch.arange(VOCABULARY) != MASK
    assert float((narrow.float() - wide)[..., known].abs().max()) < 0.05 * float(wide[..., known].abs().max())


def test_the_published_settings_come_back():
    config = tiny_config()
    assert read_published(published(config), "here") == config
    large = {**CONFIG, "vocab_size": 126_464, "embedding_size": 126_464}
    del large["mask_token_id"]
    assert read_published(large, "here").mask_rows == (126_336,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "llama"}, "model_type must be 'llada'; got 'llama'"),
        ({"block_type": "sequential"}, "block_type must be 'llama', as in the published networks; got 'sequential'"),
        ({"weight_tying": True}, "weight_tying must be False"),
        ({"d_model": None}, "d_model must be a positive integer; got None"),
        ({"mask_token_id": 160}, "mask_token_id must be an id from 0 to 159; got 160"),
        ({"n_kv_heads": 3}, "num_heads must be a multiple of num_kv_heads; got 4 and 3"),
    ],
)
def test_other_networks_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        read_published({**CONFIG, **change}, "config.json")


def test_too_long_a_sequence():
    with pytest.raises(ValueError, match=r"sequences may be 64 long at most \(max_length\); got 65"):
        tiny_llada()(inputs(65))
