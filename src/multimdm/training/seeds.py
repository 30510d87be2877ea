"""Seeds for everything random in a run, as pure functions of the run's seed and the step.

No state of a random generator needs to be saved: a resumed run computes the same numbers, and so does a run with
another number of ranks.
"""

import hashlib


def derive(seed: int, purpose: str, *numbers: int) -> int:
    """A number in 0 .. 2**63 - 1 for one purpose; unrelated for different arguments."""
    text = "/".join([str(seed), purpose, *map(str, numbers)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
