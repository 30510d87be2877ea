"""Where samples have text: by the rule that real text is described with, so that the two can be compared."""

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from multimdm.evaluation.tales_models import speaks_tales
from multimdm.pipeline import Model


def text_positions(model: Model, ids: Int64[Tensor, "num L"]) -> Bool[Tensor, "num L"]:
    """All but padding, which a model may have learnt to write.

    If the end of text serves as padding, those of its run at the end of the sequence but the first are padding. Stories
    of Tales are of one length with their padding: it is a word like others, to the source and to its exact judge.
    """
    tokenizer = model.tokenizer
    everywhere = torch.ones_like(ids, dtype=torch.bool)
    if tokenizer is None or tokenizer.pad_id is None or speaks_tales(model):
        return everywhere
    padding = ids == tokenizer.pad_id
    if tokenizer.pad_id != tokenizer.eos_id:
        return ~padding
    to_the_end = padding.flip(1).long().cumprod(1).flip(1).bool()
    return ~torch.cat([~everywhere[:, :1], to_the_end[:, 1:] & to_the_end[:, :-1]], dim=1)
