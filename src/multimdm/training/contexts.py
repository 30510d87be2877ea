"""The mistakes that a recipe asks for in contexts, with the law of the tokens that are put in."""

import torch
from torch.nn import functional as F

from multimdm.objectives import Context, ContextSettings
from multimdm.training.sources import Source


def context_of(settings: ContextSettings, source: Source, vocab_size: int) -> Context | None:
    """Over the tokens of the data, which come first in the vocabulary of the process."""
    if settings.by == "none":
        return None
    if settings.by == "own":
        return Context(settings)
    tokenizer = source.tokenizer
    if settings.by == "marginal":
        law = source.counts().double()
    else:
        law = torch.ones(tokenizer.vocab_size, dtype=torch.float64)
        if tokenizer.mask_id is not None:  # a mask inside the vocabulary (BERT's) is no token of any text
            law[tokenizer.mask_id] = 0.0
    return Context(settings, F.pad(law, (0, vocab_size - len(law))))
