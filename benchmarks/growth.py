"""How a step grows with the vocabulary and with the length of a text, on a CPU.

    python benchmarks/growth.py [--fast]

Forward, loss and backward of a small network of 4 blocks of width 256, on the same number of tokens throughout, half of
them masked. Time is that of the processor, for a busy machine tells little of a clock on the wall; it is the least of
several runs, taken in turn, and given per token relative to the first row, beside the arithmetic (products of matrices
and attention) relative to the same. Memory is what a step takes beyond the weights and their gradients, at its peak.
"""

import sys
import time
from collections.abc import Callable
from functools import partial

import torch

from memory import peak_megabytes
from multimdm.models import DiT, DiTConfig
from multimdm.objectives import Batch, Elbo
from multimdm.process import MultiMask, Streams

TOKENS, WIDTH, BLOCKS, M = 1024, 256, 4, 16
VOCABULARIES = (5_000, 16_000, 50_257, 128_000)
LENGTHS = (64, 128, 256, 512, 1024)


def step_of(V: int, L: int) -> Callable[[], None]:
    """One step, whose gradients are given up at its end."""
    torch.manual_seed(0)
    process = MultiMask(V, M)
    config = DiTConfig(V, M, WIDTH, BLOCKS, num_heads=4, cond_dim=32, max_length=L, dropout=0.0)
    network, objective = DiT(config).train(), Elbo(process)
    B = TOKENS // L
    ids = torch.randint(0, V, (B, L))

    def step() -> None:
        batch = Batch(ids, None, torch.full((B,), 0.5, dtype=torch.float64), Streams.spawn(0, B))
        objective(network, batch).loss.backward()
        network.zero_grad(set_to_none=True)

    return step


def multiplications(V: int, L: int) -> float:
    """Per token, forward: blocks, attention over the text, and the head at half of the positions."""
    return BLOCKS * (12 * WIDTH**2 + 2 * L * WIDTH) + V * WIDTH / 2


def gradients(V: int) -> float:
    """Of embedding and head, in megabytes: all that grows with V by necessity. Those of the blocks are small."""
    return 2 * V * WIDTH * 4 / 2**20


def table(title: str, sizes: tuple[tuple[int, int], ...], name: Callable[[int, int], str], repeats: int) -> None:
    """Print what each of the sizes (V, L) takes."""
    steps = [step_of(V, L) for V, L in sizes]
    least = [float("inf")] * len(steps)
    for _ in range(repeats + 1):  # the first is to warm up, and cannot be the least
        for number, step in enumerate(steps):
            start = time.process_time()
            step()
            least[number] = min(least[number], time.process_time() - start)
    del steps
    print(f"| {title} | ms per token | time | arithmetic | MB |\n|---|---|---|---|---|")
    for (V, L), seconds in zip(sizes, least, strict=True):
        arithmetic = multiplications(V, L) / multiplications(*sizes[0])
        memory = peak_megabytes(partial(step_of, V, L)) - gradients(V)
        each = 1000 * seconds / TOKENS
        print(f"| {name(V, L)} | {each:.2f} | {seconds / least[0]:.2f} | {arithmetic:.2f} | {memory:.0f} |", flush=True)
    print()


def main() -> None:
    """Two tables in Markdown."""
    repeats = 2 if "--fast" in sys.argv else 5
    torch.set_num_threads(1)
    table("V, at L = 128", tuple((V, 128) for V in VOCABULARIES), lambda V, _: f"{V:,}", repeats)
    table("L, at V = 5,000", tuple((5_000, L) for L in LENGTHS), lambda _, L: f"{L:,}", repeats)


if __name__ == "__main__":
    main()
