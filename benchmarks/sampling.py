"""What sampling costs beside the network itself, and beside a dense float64 implementation.

    python benchmarks/sampling.py

The paper's small network, V = 50,257, L = 128, eight sequences, eight steps. The dense sampler is written as is usual
in this field: logits at all positions, a [B, L, V + 1] table of float64 probabilities and as much Gumbel noise, every
step. An autoregressive network of that size writes 32 tokens, with what its attention has seen kept and without.
"""

import argparse
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from multimdm.models import SIZES, DiT, DiTConfig, Remembering
from multimdm.process import MultiMask, Streams
from multimdm.samplers import Ancestral, generate, generate_autoregressive, time_grid
from timing import in_turn


def bare(network: DiT, x: Tensor, steps: int) -> None:
    """K forward passes with the full head."""
    for t in time_grid("uniform", steps)[:-1]:
        network(x, t)


def dense(network: DiT, process: MultiMask, x: Tensor, steps: int) -> Tensor:
    """Ancestral sampling with one mask, everything over the whole table."""
    V = process.vocab_size
    times = time_grid("uniform", steps)
    for t, s in pairwise(times):
        probs = torch.softmax(network(x, t).double(), -1)
        table = torch.cat([probs * (t - s), torch.full_like(probs[..., :1], s)], dim=-1) / t
        gumbel = -torch.log(-torch.log(torch.rand_like(table).clamp_min(1e-300)))
        x = torch.where(x == V, (torch.log(table) + gumbel).argmax(-1), x)
    return x


_WRITTEN = 32
"""Tokens that the autoregressive network writes."""


def main() -> None:
    """Measure and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small")
    for name, value in (("vocabulary", 50_257), ("length", 128), ("batch", 8), ("steps", 8), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    torch.set_num_threads(2)
    V, L, B, K = options.vocabulary, options.length, options.batch, options.steps
    size = SIZES[options.size]
    network = DiT(DiTConfig(vocab_size=V, num_masks=1, max_length=L, **size)).eval()  # pyright: ignore[reportArgumentType]
    process, step = MultiMask(V, 1), Ancestral(time_grid("uniform", K))
    nothing, masks = torch.zeros(B, L, dtype=torch.long), torch.full((B, L), V)
    with torch.no_grad():
        times = in_turn(
            {
                "ours": lambda: generate(network, process, step, nothing, generator=Streams.spawn(0, B)),
                "bare passes": lambda: bare(network, masks, K),
                "dense float64": lambda: dense(network, process, masks, K),
            },
            rounds=options.rounds,
        )
    causal = DiT(replace(network.config, causal=True, conditioning="none")).eval()
    short = nothing[:, :_WRITTEN]
    written = in_turn(
        {
            "remembering": lambda: generate_autoregressive(
                Remembering(causal), V, short, generator=Streams.spawn(0, B)
            ),
            "forgetful": lambda: generate_autoregressive(causal, V, short, generator=Streams.spawn(0, B)),
        },
        rounds=options.rounds,
    )
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads; {options.size} network, "
        f"B = {B}, L = {L}, K = {K}, V = {V:,}; medians"
    )
    for name, seconds in (times | written).items():
        print(f"  {name:<14} {seconds:8.3f} s")
    print("\n| ratio | measured | aim |\n|---|---|---|")
    print(f"| ours / K bare passes with full head | {times['ours'] / times['bare passes']:.3f} | at most 1.1 |")
    print(f"| ours / dense float64 | {times['ours'] / times['dense float64']:.3f} | at most 0.75 |")
    ratio = written["remembering"] / written["forgetful"]
    print(f"| {_WRITTEN} tokens from left to right, keys and values kept / computed anew | {ratio:.3f} | at most 0.5 |")


if __name__ == "__main__":
    main()
