"""Low-rank adapters on LLaDA by peft: attached in place, taken out as a few tensors, merged into the weights."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from multimdm._checks import check_complete, require
from multimdm.models.llada import LLaDA
from multimdm.models.llada_config import Adapter

PROJECTIONS = "q_proj|k_proj|v_proj|attn_out|ff_proj|up_proj|ff_out"
TARGETS = rf"blocks\.\d+\.({PROJECTIONS})"
"""An expression, since `ff_out` is also the name of the head, which must stay as it is."""

_NAME = "default"
_MISSING = "adapters need the package peft: pip install 'multimdm[adapt]'"


def attach(network: LLaDA, adapter: Adapter, seed: int = 0) -> LLaDA:
    """Put a new adapter into the network; at first it changes nothing. All other weights are frozen.

    LoRA's first factors are random, a function of the seed. Trained weights are float32, whatever the others are: steps
    as small as those of adaptation vanish in bfloat16.
    """
    require(network.adapter is None, "the network has an adapter already; merge it first, or load the base anew")
    peft = _peft()
    settings = peft.LoraConfig(
        r=adapter.rank,
        lora_alpha=adapter.alpha,
        lora_dropout=adapter.dropout,
        target_modules=TARGETS,
        trainable_token_indices={"wte": list(network.config.mask_rows)},
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        peft.inject_adapter_in_model(settings, network, adapter_name=_NAME)
    for name, weight in network.named_parameters():
        weight.requires_grad_(_is_trained(name))
        if _is_trained(name):
            weight.data = weight.data.float()
    network.adapter = adapter
    return network


def adapter_tensors(network: LLaDA) -> dict[str, Tensor]:
    """What the adapter has learnt: LoRA's factors and the rows of the masks, and nothing else."""
    require(network.adapter is not None, "the network has no adapter")
    state = network.state_dict()
    return {public_name(name): state[name] for name in trained_names(network)}


def trained_names(network: LLaDA) -> list[str]:
    """The names of the adapter's parameters."""
    return [name for name, _ in network.named_parameters() if _is_trained(name)]


@torch.no_grad()
def load_adapter(network: LLaDA, adapter: Adapter, tensors: Mapping[str, Tensor]) -> LLaDA:
    """Attach an adapter with these tensors; one that does not fit is refused, by name."""
    attach(network, adapter)
    own = {public_name(name): name for name in trained_names(network)}
    check_complete("the adapter", own, tensors)
    for public, name in own.items():
        weight, tensor = network.get_parameter(name), tensors[public]
        require(
            weight.shape == tensor.shape,
            f"the adapter's tensor '{public}' has shape {list(tensor.shape)}; this network needs {list(weight.shape)}: "
            "it was made for another number of masks, rank or base",
        )
        parent, _, leaf = name.rpartition(".")
        device = tensor.device if weight.is_meta else weight.device
        value = nn.Parameter(tensor.to(device, torch.float32, copy=True), weight.requires_grad)
        setattr(network.get_submodule(parent), leaf, value)
    return network


def merge(network: LLaDA) -> LLaDA:
    """The network with the adapter's changes in its own weights, and no adapter. In place."""
    require(network.adapter is not None, "the network has no adapter to merge")
    modules: list[tuple[str, Any]] = list(network.named_modules())
    for name, module in modules:
        if hasattr(module, "unload_and_optionally_merge_module"):
            merged = module.unload_and_optionally_merge_module(merge=True, safe_merge=True, adapter_names=None)
        elif hasattr(module, "lora_A"):
            module.merge(safe_merge=True)
            merged = module.get_base_layer()
        else:
            continue
        parent, _, leaf = name.rpartition(".")
        setattr(network.get_submodule(parent), leaf, merged)
    network.adapter = None
    del network.peft_config
    return network


def skeleton(network: LLaDA, tensors: Mapping[str, Tensor]) -> LLaDA:
    """A network with the adapter's tensors and no others: enough to save it, at no cost in memory."""
    assert network.adapter is not None
    return load_adapter(LLaDA(network.config, device="meta"), network.adapter, tensors)


def _is_trained(name: str) -> bool:
    return ".lora_A." in name or ".lora_B." in name or "trainable_tokens_delta" in name


def public_name(name: str) -> str:
    """The name of a parameter in an adapter's file, as peft writes it: without the name of the adapter."""
    return name.replace(f".{_NAME}", "")


def _peft() -> Any:
    try:
        import peft
    except ImportError:
        raise ValueError(_MISSING) from None
    return peft
