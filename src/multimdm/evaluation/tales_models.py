"""Models of Tales, for which probabilities and validity are exact."""

import hashlib
from functools import lru_cache

from multimdm.data.tales import Tales
from multimdm.data.tales_words import DEFAULT
from multimdm.pipeline import Model
from multimdm.pipeline.generation import length_of


def fingerprint_of_tales(tales: Tales) -> str:
    """A hash of vocabulary and rules: stories of another version of the grammar have other probabilities."""
    # The grammar is plain data, whose repr says all of it; `tales_for` uses no other.
    digest = hashlib.sha256("\n".join([*tales.vocabulary, repr(DEFAULT)]).encode()).hexdigest()
    return f"tales {digest[:24]}, length {tales.length}"


def speaks_tales(model: Model) -> bool:
    """Whether the model's tokens are the words of Tales."""
    return model.tokenizer is not None and model.tokenizer.name == "tales"


def tales_for(model: Model, length: int | None = None) -> Tales:
    """The source whose ids are the model's; an error if they mean something else."""
    if not speaks_tales(model):
        what = "has no tokenizer" if model.tokenizer is None else f"has the tokenizer '{model.tokenizer.name}'"
        raise ValueError(f"tales can be used only with a model of Tales; this one {what}")
    tales = _tales(length_of(model, length))
    V = model.network.config.vocab_size
    if tales.vocab_size != V:
        raise ValueError(f"the model has {V} tokens and Tales {tales.vocab_size}: it is of another version of Tales")
    return tales


@lru_cache(maxsize=4)
def _tales(length: int) -> Tales:
    return Tales(length)
