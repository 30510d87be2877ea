"""A causal network that keeps keys and values says what it says without."""

import pytest
import torch

from multimdm.models import DiT, DiTConfig, Remembering
from multimdm.process import Streams
from multimdm.samplers.autoregressive import generate_autoregressive

V, B, L = 11, 3, 70


def causal(**options) -> DiT:
    torch.manual_seed(0)
    sizes = {"vocab_size": V, "hidden_dim": 32, "num_blocks": 2, "num_heads": 4, "cond_dim": 16, "max_length": L}
    net = DiT(
        DiTConfig(**({**sizes, "num_masks": 1, "dropout": 0.0, "causal": True, "conditioning": "none"} | options))
    ).double()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return net.eval()


def logits(network: DiT | Remembering, x: torch.Tensor, *more) -> torch.Tensor:
    result = network(x, *more)
    assert isinstance(result, torch.Tensor)
    return result


def texts() -> torch.Tensor:
    return torch.randint(0, V, (B, L), generator=torch.Generator().manual_seed(1))


# Ends of the beginnings that are shown: one token after the other, all at once, and pieces, beyond the first room too.
CALLS = {"one by one": range(1, L + 1), "at once": [L], "pieces": [3, 4, 31, 35, 36, L]}


@pytest.mark.parametrize("ends", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("options", [{}, {"absolute_positions": True}, {"conditioning": "time"}], ids=str)
@torch.no_grad()
def test_new_positions_are_those_of_the_whole(ends, options):
    net, x, t = causal(**options), texts(), torch.tensor([0.2, 0.5, 0.9])
    time = t if options.get("conditioning") == "time" else None
    remembering, before = Remembering(net), 0
    expected = logits(net, x, time)
    for end in ends:
        torch.testing.assert_close(remembering(x[:, :end], time), expected[:, before:end], rtol=1e-10, atol=1e-12)
        before = end


@torch.no_grad()
def test_requested_positions_among_the_new():
    net, x = causal(), texts()
    remembering, last = Remembering(net), torch.zeros(B, 40, dtype=torch.bool)
    last[:, -1] = True
    remembering(x[:, :30])
    expected = logits(net, x[:, :40])[:, -1]
    torch.testing.assert_close(logits(remembering, x[:, :40], None, last), expected, rtol=1e-10, atol=1e-12)

    def largest(logits, rows):
        return logits.argmax(-1)

    again = Remembering(net)
    found = again(x[:, :40], None, last, reduce=largest)
    assert isinstance(found, torch.Tensor)
    assert torch.equal(found, expected.argmax(-1))


@torch.no_grad()
def test_what_is_kept_is_read():
    """The mutant: another beginning in memory changes what is said of the rest."""
    net, x = causal(), texts()
    remembering, misled = Remembering(net), Remembering(net)
    remembering(x[:, :9])
    misled((x[:, :9] + 1) % V)
    assert (logits(remembering, x[:, :10]) - logits(misled, x[:, :10])).abs().max() > 1e-3


@pytest.mark.parametrize("prompt", [0, 5])
def test_texts_are_the_same(prompt):
    net = causal()
    given, fixed = texts(), torch.zeros(B, L, dtype=torch.bool)
    fixed[:, :prompt] = True
    forgetful, remembering = (
        generate_autoregressive(network, V, given, fixed, generator=Streams([1, 2, 3])).ids
        for network in (net, Remembering(net))
    )
    assert torch.equal(forgetful, remembering)
    assert torch.equal(remembering[:, :prompt], given[:, :prompt])


def test_a_network_that_looks_ahead_cannot_remember():
    with pytest.raises(ValueError, match="only a causal network can remember"):
        Remembering(causal(causal=False))


@torch.no_grad()
def test_nothing_new():
    remembering = Remembering(causal())
    remembering(texts()[:, :4])
    with pytest.raises(ValueError, match="x_t must have more than the 4 positions that were shown; got 4"):
        remembering(texts()[:, :4])
