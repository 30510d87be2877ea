"""The process that a recipe asks for."""

import torch
from torch import Tensor

from multimdm._checks import require
from multimdm.process import Hybrid, MultiMask, Schedule, clustered, frequency_balanced, modulo, random_balanced
from multimdm.training.seeds import derive
from multimdm.training.settings import ProcessChoice
from multimdm.training.sources import Source


def multi_mask(
    choice: ProcessChoice,
    num_masks: int,
    source: Source,
    seed: int,
    vocab_size: int | None = None,
    embeddings: Tensor | None = None,
) -> MultiMask:
    """Over the tokens of the data, or a larger vocabulary that has them first; embeddings are of a trained model."""
    V = source.tokenizer.vocab_size if vocab_size is None else vocab_size
    assignment = _assignment(choice, num_masks, source, seed, V, embeddings)
    return MultiMask(V, num_masks, Schedule(choice.rho, choice.alpha), assignment, readout=choice.readout)


def hybrid(choice: ProcessChoice, vocab_size: int, width: int) -> Hybrid:
    """CANDI's, with as few Gaussians per position as a network of this width takes."""
    return Hybrid(vocab_size, Schedule(kind=choice.alpha), choice.ranks, min(vocab_size, width))


def _assignment(
    choice: ProcessChoice, num_masks: int, source: Source, seed: int, V: int, embeddings: Tensor | None
) -> Tensor:
    if choice.assignment == "clustered":
        require(
            embeddings is not None,
            "process.assignment clustered groups tokens by the embeddings of a trained model: continue one (adapt, "
            "couple), or take another assignment",
        )
        assert embeddings is not None
        return clustered(embeddings[:V], num_masks, derive(seed, "assignment"))
    if choice.assignment == "random":
        return random_balanced(V, num_masks, derive(seed, "assignment"))
    if choice.assignment == "frequency":
        counts = source.counts().double()
        return frequency_balanced(torch.nn.functional.pad(counts, (0, V - len(counts))), num_masks)
    return modulo(V, num_masks)
