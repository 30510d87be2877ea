"""How fast Tales draws and judges stories, and how much there is to say in one.

python benchmarks/tales.py
"""

import statistics
import time
from collections.abc import Callable

import torch

from multimdm.data.tales import Tales

DRAWN, JUDGED, REPEATS, RATE = 10_000, 1_000, 5, 0.1


def median_seconds(work: Callable[[], object]) -> float:
    """Median wall time of a piece of work, after one run to warm up."""
    seconds = []
    for turn in range(REPEATS + 1):
        start = time.perf_counter()
        work()
        if turn > 0:
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def main() -> None:
    """Print sizes, entropy and times."""
    tales, generator = Tales(), torch.Generator().manual_seed(1)
    stories = tales.sample(JUDGED, generator)
    noise = torch.randint(0, tales.vocab_size, stories.shape, generator=generator)
    noisy = torch.where(torch.rand(stories.shape, generator=generator) < RATE, noise, stories)
    print(
        f"{tales.vocab_size} tokens, stories of {tales.shortest} to {tales.longest}, {torch.get_num_threads()} threads"
    )
    print(f"entropy {tales.entropy():.3f} nats per story, {tales.entropy_per_token:.4f} per token")
    print(f"sample {DRAWN} stories: {median_seconds(lambda: tales.sample(DRAWN, generator)):.2f} s")
    print(f"log_prob of {JUDGED} noisy stories: {median_seconds(lambda: tales.log_prob(noisy)):.2f} s")
    print(f"valid_sentences of {JUDGED} noisy stories: {median_seconds(lambda: tales.valid_sentences(noisy)):.2f} s")


if __name__ == "__main__":
    main()
