"""From one mask to many: the warm start of MultiMDM-cont (Sec. 3.2, continual adaptation)."""

from dataclasses import replace

import torch

from multimdm.models.dit import DiT
from multimdm.process.checks import check_integer, require


def expand_masks(network: DiT, num_masks: int) -> DiT:
    """A network with `num_masks` masks, each a copy of the one it had: every mask then gives the same logits.

    The given network is left as it is.
    """
    check_integer("num_masks", num_masks, 1)
    config = network.config
    require(config.num_masks == 1, f"only a network with one mask can be expanded; this one has {config.num_masks}")
    state = dict(network.state_dict())
    V = config.vocab_size
    rows = state["vocab_embed.embedding"]
    state["vocab_embed.embedding"] = torch.cat([rows[:V], rows[V:].expand(num_masks, -1)])
    with torch.device(rows.device):
        expanded = DiT(replace(config, num_masks=num_masks)).to(rows.dtype)
    expanded.load_state_dict(state)
    return expanded.train(network.training)
