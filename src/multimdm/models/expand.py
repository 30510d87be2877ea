"""From one mask to many, and from a constant to a sense of time: the warm start of MultiMDM-cont.

Sec. 3.2, continual adaptation. The multi-mask posterior depends on t, and MDLM's networks do not see it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from multimdm.models.config import DiTConfig
from multimdm.models.dit import DiT
from multimdm.process.checks import check_integer, require


def expand_masks(network: DiT, num_masks: int) -> DiT:
    """A network with `num_masks` masks, each a copy of the one it had: every mask then gives the same logits.

    The given network is left as it is.
    """
    check_integer("num_masks", num_masks, 1)
    config = network.config
    require(config.num_masks == 1, f"only a network with one mask can be expanded; this one has {config.num_masks}")
    V = config.vocab_size

    def copy_mask(state: dict[str, Tensor]) -> None:
        rows = state["vocab_embed.embedding"]
        state["vocab_embed.embedding"] = torch.cat([rows[:V], rows[V:].expand(num_masks, -1)])

    return _rebuilt(network, replace(config, num_masks=num_masks), copy_mask)


def gate_time(network: DiT, conditioning: Literal["sigma", "time"] = "sigma") -> DiT:
    """A network that is conditioned on time through a gate at zero: it gives the logits it gave without.

    The given network is left as it is; one that is conditioned on time already is copied unchanged.
    """
    config = network.config
    if config.conditioning != "none":
        return _rebuilt(network, config, lambda state: None)

    def add_gate(state: dict[str, Tensor]) -> None:
        state["sigma_map.gate"] = torch.zeros_like(state["sigma_map.mlp.2.bias"])

    return _rebuilt(network, replace(config, conditioning=conditioning, time_gate=True), add_gate)


def with_dropout(network: DiT, dropout: float) -> DiT:
    """The same weights with another dropout."""
    return _rebuilt(network, replace(network.config, dropout=dropout), lambda state: None)


def _rebuilt(network: DiT, config: DiTConfig, change: Callable[[dict[str, Tensor]], None]) -> DiT:
    """A new network with another configuration and the old one's tensors, changed."""
    state = dict(network.state_dict())
    rows = state["vocab_embed.embedding"]
    change(state)
    with torch.device(rows.device):
        rebuilt = DiT(config).to(rows.dtype)
    rebuilt.load_state_dict(state)
    return rebuilt.train(network.training)
