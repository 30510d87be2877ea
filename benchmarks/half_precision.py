"""What bfloat16 gains in training on a CPU that computes in it (avx512_bf16, amx).

    python benchmarks/half_precision.py

Steps are forward, loss and backward of `tales-mdlm` (32 stories, the network of a million parameters) on one thread.
In the third row attention is left to torch's own kernel in bfloat16, as it was before `models.layers.attention`.
"""

from collections.abc import Callable
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F

from multimdm.data import Tales
from multimdm.models import SIZES, DiT, DiTConfig, layers
from multimdm.objectives import Batch, Elbo
from multimdm.process import MultiMask, Streams
from timing import in_turn


def step(net: DiT, given: Batch, half: bool) -> Callable[[], None]:
    """Forward, loss and backward."""
    objective = Elbo(MultiMask(net.config.vocab_size, 1))

    def work() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = objective(net, given).loss
        loss.backward()
        net.zero_grad(set_to_none=True)

    return work


def torch_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """In the precision that is given."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)


def with_torch_attention(work: Callable[[], None]) -> Callable[[], None]:
    """The same work with torch's own kernel."""

    def done() -> None:
        with mock.patch.object(layers, "attention", torch_attention):
            work()

    return done


def main() -> None:
    """Measure and print the ratios."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tales = Tales()
    ids = tales.sample(32, torch.Generator().manual_seed(0))
    size = SIZES["tiny"]
    config = DiTConfig(
        tales.vocab_size,
        hidden_dim=size["hidden_dim"],
        num_blocks=size["num_blocks"],
        num_heads=size["num_heads"],
        cond_dim=size["cond_dim"],
        max_length=ids.shape[1],
        dropout=0.0,
    )
    net = DiT(config).train()
    given = Batch(ids, None, torch.linspace(0.02, 1, 32, dtype=torch.float64), Streams.spawn(0, 32))
    times = in_turn(
        {
            "float32": step(net, given, half=False),
            "bfloat16": step(net, given, half=True),
            "bfloat16, torch's attention": with_torch_attention(step(net, given, half=True)),
        },
        rounds=25,
    )
    print(f"torch {torch.__version__}, one thread; medians")
    for name, seconds in times.items():
        print(f"  {name:<28} {1000 * seconds:8.1f} ms")
    print("\n| ratio | measured | aim |\n|---|---|---|")
    print(f"| step: bfloat16 / float32 | {times['bfloat16'] / times['float32']:.2f} | at most 0.7 |")
    own = times["bfloat16, torch's attention"]
    print(f"| step in bfloat16: ours / torch's attention | {times['bfloat16'] / own:.2f} | at most 0.7 |")


if __name__ == "__main__":
    main()
