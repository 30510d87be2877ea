"""A network that starts by copying: attention passes on what it attends to, and the head reads it off."""

import torch

from multimdm.models import DiT, DiTConfig, start_copying
from multimdm.models.layers import Block, modulate

V, L = 11, 6


def copying() -> DiT:
    torch.manual_seed(0)
    network = DiT(DiTConfig(V, 2, hidden_dim=16, num_blocks=2, num_heads=2, cond_dim=8, dropout=0.0, max_length=L))
    torch.nn.init.normal_(network.vocab_embed.embedding)
    start_copying(network)
    return network


def test_attention_adds_what_it_attends_to():
    """With queries at zero, every position attends to all alike: what is added is the mean of the normalised inputs."""
    network = copying()
    block = network.blocks[0]
    assert isinstance(block, Block)
    with torch.no_grad():
        block.attn_qkv.weight[:16] = 0.0
        for parameter in block.mlp[2].parameters():
            parameter.zero_()
    x, c = torch.randn(3, L, 16), torch.zeros(3, 1, 8)
    shift = scale = torch.zeros(1)
    expected = x + modulate(block.norm1(x), shift, scale).mean(1, keepdim=True)
    torch.testing.assert_close(block(x, c, network.rotary_emb.angles(L), None, False), expected)


def test_a_word_that_is_seen_is_the_word_that_is_said():
    """The head's largest logit for an embedding that passed through unchanged is its own token's."""
    network = copying()
    with torch.no_grad():
        for block in network.blocks:
            assert isinstance(block, Block)
            block.adaLN_modulation.bias.zero_()  # closed gates: nothing is added
    ids = torch.arange(V - V % L).reshape(-1, L)
    assert torch.equal(network(ids, torch.tensor(0.5)).argmax(-1), ids)


def test_predictions_begin_nearly_uniform():
    network = copying()
    ids = torch.randint(0, V, (4, L), generator=torch.Generator().manual_seed(0))
    entropy = torch.distributions.Categorical(logits=network(ids, torch.tensor(0.5))).entropy()
    assert float(entropy.detach().min()) > 0.9 * torch.log(torch.tensor(float(V)))
