"""How many rows of a table over the vocabulary are worked on at once."""

from torch import Tensor

ENTRIES_ON_A_GPU = 2**27
"""256 MB in bfloat16. What samplers do to rows (sorting them, say) takes many times that."""
TRAINED_ON_A_GPU = 2**28
"""Where a loss is differentiated: every chunk takes some fifty launches and reads the head's weights three times."""


def chunk_rows(columns: int, on: Tensor, entries_on_a_cpu: int, trained: bool = False) -> int:
    """At least one; on a CPU, as many as make the best of its caches."""
    on_a_gpu = TRAINED_ON_A_GPU if trained else ENTRIES_ON_A_GPU
    return max(1, (on_a_gpu if on.is_cuda else entries_on_a_cpu) // columns)
