"""A grammar so small that all strings can be listed, and what follows from evidence by listing them."""

from functools import lru_cache

import torch
from torch import Tensor

from multimdm.data.tales import Tales
from multimdm.data.tales_grammar import Grammar, Sentence, by, words

# 7 tokens, stories of 6 at most: all 7^6 strings can be listed.
TINY = Grammar(
    {"gender": words("girl, boy"), "hero": by("gender", {"girl": "Bo", "boy": "Al, Bo"})},
    {"he": by("gender", {"girl": "she", "boy": "he, he he"})},
    (
        Sentence({(): {"{hero}": 1}}),
        Sentence({("Bo",): {"{he}": 1, "Al": 1}, ("Al",): {"{he}": 2, "Bo": 1}}, given="hero"),
    ),
)


def all_strings(tales: Tales) -> Tensor:
    """Every one of them, [V^length, length]."""
    return torch.cartesian_prod(*[torch.arange(tales.vocab_size)] * tales.length)


def listed_posterior(tales: Tales, evidence: Tensor, epsilon: float, leave_out: bool = False) -> Tensor:
    """log p(x^l = a | evidence) [B, length, V], the evidence at l left out or not, by listing all strings."""
    strings, prior = _listed(tales, epsilon)
    V, place = tales.vocab_size, torch.arange(tales.length)
    found = []
    for row in evidence:
        each = row.log()[place, strings]  # [strings, length]
        for here in range(tales.length):
            told = each[:, place != here] if leave_out else each
            weights = torch.zeros(V, dtype=torch.float64)
            weights.index_add_(0, strings[:, here], (prior + told.sum(1)).exp())
            found.append((weights / weights.sum()).log())
    return torch.stack(found).view(*evidence.shape[:2], V)


@lru_cache(maxsize=4)
def _listed(tales: Tales, epsilon: float) -> tuple[Tensor, Tensor]:
    """All strings, and their log-probabilities."""
    strings = all_strings(tales)
    return strings, tales.log_prob(strings, epsilon)
