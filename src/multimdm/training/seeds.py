"""Seeds for everything random in a run, as pure functions of the run's seed and the step.

No state of a random generator needs to be saved: a resumed run computes the same numbers, and so does a run with
another number of ranks.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any


def derive(seed: int, purpose: str, *numbers: int) -> int:
    """A number in 0 .. 2**63 - 1 for one purpose; unrelated for different arguments."""
    text = "/".join([str(seed), purpose, *map(str, numbers)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def stage_seed(seed: int, lineage: Sequence[Mapping[str, Any]]) -> int:
    """For the texts, times, noise and dropout of a run that continues a model: another in every stage of its lineage.

    With the seed of the recipe alone a second stage would meet what the first has learnt already. A first stage has
    that seed itself; what was imported was not trained here.
    """
    earlier = sum("recipe" in step for step in lineage)
    return derive(seed, "earlier stages", earlier) if earlier else seed
