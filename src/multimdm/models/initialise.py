"""Where training begins, for small networks that have minutes and not weeks."""

import torch

from multimdm.models.dit import DiT
from multimdm.models.layers import Block

_HEAD_SCALE = 0.05
"""The head's rows as a share of the embeddings: predictions begin nearly uniform."""


@torch.no_grad()
def start_copying(network: DiT) -> None:
    """Let attention begin by copying what it attends to, and the head by reading tokens off the embeddings.

    Values and outputs of attention are the identity, gates are open, and the head's rows are small multiples of the
    embeddings: to repeat a word that stands elsewhere, a network has only to learn where to look. From random weights
    it must learn at the same time where to look and, word by word, how to pass on what it sees; on Tales it does not
    within minutes.
    """
    d = network.config.hidden_dim
    for block in network.blocks:
        assert isinstance(block, Block)
        torch.nn.init.eye_(block.attn_qkv.weight[2 * d :])
        torch.nn.init.eye_(block.attn_out.weight)
        gates = block.adaLN_modulation.bias.unflatten(0, (6, d))
        gates[2], gates[5] = 1.0, 1.0
    V = network.config.vocab_size
    network.output_layer.linear.weight.copy_(_HEAD_SCALE * network.vocab_embed.rows[:V])
