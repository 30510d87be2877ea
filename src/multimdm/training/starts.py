"""The checkpoint that a job begins with."""

import copy

from multimdm._checks import require
from multimdm.models import Backbone, LLaDA
from multimdm.pipeline import Model
from multimdm.process import Uniform
from multimdm.training.fitting import check_length, check_tokenizer
from multimdm.training.llada_jobs import check_llada_fits
from multimdm.training.sources import Source


def check_fits(start: Model, init: str, source: Source) -> None:
    """A checkpoint and the data that it is to be trained on."""
    check_tokenizer(start.tokenizer, init, source)
    if isinstance(start.network, LLaDA):
        check_llada_fits(start, init, source)
        return
    config = start.network.config
    spare = config.vocab_size - source.tokenizer.vocab_size
    # DUO's published networks have one state more than GPT-2 has tokens, which no text has (pipeline/exchange.py).
    require(
        spare == 0 or (spare == 1 and isinstance(start.process, Uniform)),
        f"init and data must have the same vocabulary; {init} has {config.vocab_size} tokens, the data "
        f"{source.tokenizer.vocab_size}",
    )
    check_length(config.max_length, init, source)


def own_copy(network: Backbone) -> Backbone:
    """A network of its own, but for the frozen weights under an adapter, which never change."""
    frozen = {id(x): x for x in network.parameters() if not x.requires_grad}
    return copy.deepcopy(network, frozen)
