"""A network without a sense of time gets one through a gate at zero: it begins as it was."""

from dataclasses import replace

import pytest
import torch

from multimdm.models import DiT, DiTConfig, expand_masks, gate_time

V = 11


def network(**changes) -> DiT:
    torch.manual_seed(0)
    config = DiTConfig(V, 1, hidden_dim=16, num_blocks=2, num_heads=2, cond_dim=8, dropout=0.0, conditioning="none")
    net = DiT(replace(config, **changes))
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return net.double().eval()


@pytest.mark.parametrize("conditioning", ["sigma", "time"])
def test_the_adapted_network_is_the_one_it_was(conditioning):
    old = network()
    new = gate_time(expand_masks(old, 4), conditioning)
    x_t = torch.randint(0, V + 1, (5, 6))
    which = V + torch.randint(0, 4, (5, 6))
    t = torch.rand(5, dtype=torch.float64)
    before, after = old(x_t, t), new(torch.where(x_t == V, which, x_t), t)
    torch.testing.assert_close(before, after, rtol=1e-12, atol=1e-12)  # one row of modulation or five: rounding
    assert new.config.conditioning == conditioning
    assert new.config.num_masks == 4


def test_the_gate_can_learn():
    """Its gradient is not zero, and once it is open the network sees the time."""
    new = gate_time(network())
    x_t, t = torch.randint(0, V + 1, (5, 6)), torch.rand(5, dtype=torch.float64)
    gate = new.sigma_map.gate
    assert gate is not None
    (slope,) = torch.autograd.grad(new(x_t, t).square().sum(), gate)
    assert float(slope.abs().max()) > 0
    with torch.no_grad():
        gate.fill_(1.0)
    seeing = DiT(replace(new.config, time_gate=False)).double().eval()
    seeing.load_state_dict({name: x for name, x in new.state_dict().items() if name != "sigma_map.gate"})
    torch.testing.assert_close(new(x_t, t), seeing(x_t, t), rtol=1e-12, atol=1e-12)


def test_a_network_that_sees_time_is_copied():
    old = network(conditioning="sigma")
    new = gate_time(old)
    assert new.config == old.config
    assert new is not old
    for one, other in zip(new.parameters(), old.parameters(), strict=True):
        assert torch.equal(one, other)
        assert one is not other


def test_a_gate_needs_something_to_let_through():
    with pytest.raises(ValueError, match="time_gate needs a conditioning"):
        DiTConfig(V, time_gate=True, conditioning="none")
