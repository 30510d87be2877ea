"""Many masks on LLaDA, and adapters: nothing changes at first, the base never, and what is learnt is small."""

import pytest
import torch

from multimdm.models import Adapter, LLaDA
from multimdm.models.llada_masks import appended_rows, check_unused, expand_llada, reserved_rows
from multimdm.models.lora import adapter_tensors, attach, load_adapter, merge, skeleton, trained_names
from support.tiny_llada import MASK, SPARE, VOCABULARY, tiny_config, tiny_llada, weights_hash

M = 4
PLACES = pytest.mark.parametrize("place", ["reserved", "appended"])


def rows(place: str, network: LLaDA) -> tuple[int, ...]:
    return reserved_rows(network.config, M, SPARE) if place == "reserved" else appended_rows(network.config, M)


def inputs(masks: int) -> torch.Tensor:
    """Tokens that texts have, and masks."""
    x_t = torch.randint(0, MASK + masks, (3, 12), generator=torch.Generator().manual_seed(1))
    return torch.where(x_t < MASK, x_t, x_t - MASK + VOCABULARY)


def adapted(place: str = "appended", seed: int = 0) -> LLaDA:
    """With an adapter that has learnt something."""
    base = tiny_llada()
    network = attach(expand_llada(base, rows(place, base)), Adapter(rank=3, alpha=6.0), seed)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name in trained_names(network):
            network.get_parameter(name).normal_(0.0, 0.2, generator=generator)
    return network


@PLACES
def test_every_mask_begins_as_the_one_there_was(place):
    base = tiny_llada()
    before = weights_hash(base)
    network = expand_llada(base, rows(place, base))
    x_t = inputs(M)
    known = torch.ones(VOCABULARY, dtype=torch.bool)
    known[[MASK, *SPARE]] = False
    expected = base(x_t.clamp_max(VOCABULARY))[..., known]
    assert torch.equal(network(x_t)[..., known], expected)
    assert network.config.num_masks == M
    assert bool(network(x_t)[..., list(network.config.suppressed)].isneginf().all())
    assert network.ff_out.weight.data_ptr() == base.ff_out.weight.data_ptr()  # no second copy
    assert weights_hash(base) == before
    attach(network, Adapter())
    assert torch.equal(network(x_t)[..., known], expected)  # LoRA begins at zero
    assert base.ff_out.weight.requires_grad  # freezing one does not freeze the other


def test_only_the_adapter_learns():
    base = tiny_llada()
    before = weights_hash(base)
    network = attach(expand_llada(base, rows("appended", base)), Adapter(rank=2)).train()
    trained = [x for x in network.parameters() if x.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1)
    for _ in range(3):
        x_t = inputs(M)
        total = network(x_t, None, x_t >= VOCABULARY, None, lambda logits, rows: -logits[:, 3].sum())
        total.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert weights_hash(base) == before
    learnt = adapter_tensors(network)
    assert any(name.endswith("trainable_tokens_delta") for name in learnt)
    assert all("lora_" in name or "trainable_tokens" in name for name in learnt)
    assert not any(name.startswith("ff_out") for name in learnt)  # the head, whose name the blocks share
    assert len({tuple(row.tolist()) for row in learnt["wte.token_adapter.trainable_tokens_delta"]}) > 1


@PLACES
def test_an_adapter_on_a_fresh_base_and_merged(place):
    network, x_t = adapted(place), inputs(M)
    expected = network(x_t)
    known = expected[0, 0].isfinite()
    tensors = adapter_tensors(network)
    base = tiny_llada()
    before = weights_hash(base)
    fresh = load_adapter(expand_llada(base, rows(place, base)), Adapter(rank=3, alpha=6.0), tensors)
    assert torch.equal(fresh(x_t), expected)
    merged = merge(fresh)
    torch.testing.assert_close(merged(x_t)[..., known], expected[..., known], atol=1e-4, rtol=1e-4)
    assert merged.adapter is None
    assert merged.state_dict().keys() == base.state_dict().keys()
    assert float((base(x_t.clamp_max(VOCABULARY)) - expected).detach()[..., known].abs().max()) > 0.1
    assert weights_hash(base) == before


def test_a_skeleton_has_the_adapter_and_nothing_else():
    network = adapted()
    bare = skeleton(network, adapter_tensors(network))
    assert bare.ff_out.weight.is_meta
    for name, tensor in adapter_tensors(bare).items():
        assert torch.equal(tensor, adapter_tensors(network)[name])


def test_trained_weights_are_float32_on_a_bfloat16_base():
    base = tiny_llada().to(torch.bfloat16)
    network = attach(expand_llada(base, rows("appended", base)), Adapter())
    assert {network.get_parameter(name).dtype for name in trained_names(network)} == {torch.float32}
    assert network(inputs(M)).dtype == torch.bfloat16


def test_equal_seeds_begin_equally():
    one, other, third = (
        attach(expand_llada(tiny_llada(), appended_rows(tiny_config(), M)), Adapter(), seed) for seed in (1, 1, 2)
    )
    name = "blocks.0.q_proj.lora_A.weight"
    assert torch.equal(adapter_tensors(one)[name], adapter_tensors(other)[name])
    assert not torch.equal(adapter_tensors(one)[name], adapter_tensors(third)[name])


def test_bad_input():
    config = tiny_config()
    with pytest.raises(
        ValueError, match=r"num_masks must be at most 4, for which .* has spare rows; got 5: append rows"
    ):
        reserved_rows(config, 5, SPARE)
    with pytest.raises(ValueError, match=r"num_masks must be at most 1"):
        reserved_rows(config, 2)
    with pytest.raises(ValueError, match=r"mask ids must not be tokens of the data; \[37\] are: choose other rows"):
        check_unused((MASK, *SPARE), [1, 2, 37])
    with pytest.raises(ValueError, match=r"only a network with one mask can be expanded; this one has 4"):
        expand_llada(adapted(), (MASK, 41))
    with pytest.raises(ValueError, match=r"the network has an adapter already"):
        attach(adapted(), Adapter())
    with pytest.raises(ValueError, match=r"has no adapter to merge"):
        merge(tiny_llada())
    tensors, base = adapter_tensors(adapted()), tiny_llada()
    with pytest.raises(ValueError, match=r"has shape .* another number of masks, rank or base"):
        load_adapter(expand_llada(base, appended_rows(config, M + 1)), Adapter(rank=3), tensors)
    lacking = {k: v for k, v in tensors.items() if not k.startswith("wte")}
    with pytest.raises(ValueError, match=r"the adapter lacks 1 tensors, the first is 'wte"):
        load_adapter(expand_llada(base, appended_rows(config, M)), Adapter(rank=3), lacking)


def test_the_published_reserve_is_enough_for_the_paper():
    large = tiny_config(vocab_size=126_464, num_rows=126_464, mask_rows=(126_336,))
    chosen = reserved_rows(large, 50)
    assert len(set(chosen)) == 50
    assert chosen[0] == 126_336
    assert min(chosen) == 126_084
