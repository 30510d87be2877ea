"""How fast Tales draws and judges stories, and how much there is to say in one.

python benchmarks/tales.py
"""

import torch

from multimdm.data.tales import Tales
from timing import in_turn

DRAWN, JUDGED, REPEATS, RATE = 10_000, 1_000, 5, 0.1


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
    works = {
        f"sample {DRAWN} stories": lambda: tales.sample(DRAWN, generator),
        f"log_prob of {JUDGED} noisy stories": lambda: tales.log_prob(noisy),
        f"valid_sentences of {JUDGED} noisy stories": lambda: tales.valid_sentences(noisy),
    }
    for name, seconds in in_turn(works, REPEATS).items():
        print(f"{name}: {seconds:.2f} s")


if __name__ == "__main__":
    main()
