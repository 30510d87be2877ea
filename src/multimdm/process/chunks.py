"""How many rows of a table over the vocabulary are worked on at once."""

from torch import Tensor

ENTRIES_ON_A_GPU = 2**28
"""512 MB in bfloat16. Every chunk takes some fifty launches and reads the head's weights anew."""


def chunk_rows(columns: int, on: Tensor, entries_on_a_cpu: int) -> int:
    """At least one; on a CPU, as many as make the best of its caches."""
    entries = ENTRIES_ON_A_GPU if on.is_cuda else entries_on_a_cpu
    return max(1, entries // columns)
