"""Whether a checkpoint and the data that it is to be trained on fit together."""

from multimdm._checks import require
from multimdm.data.tokenizer import Tokenizer
from multimdm.models import LLaDA
from multimdm.pipeline import Model
from multimdm.process import MultiMask, Uniform
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


def check_tokenizer(tokenizer: Tokenizer | None, init: str, source: Source) -> None:
    """Equal ids must mean equal tokens; a checkpoint without a tokenizer takes any."""
    require(
        tokenizer is None or tokenizer.fingerprint == source.tokenizer.fingerprint,
        f"init and data must have the same tokenizer; {init} has {tokenizer!r}, the data "
        f"{source.tokenizer!r}: prepare the data with the tokenizer of the checkpoint",
    )


def check_length(max_length: int, init: str, source: Source) -> None:
    """The network must be made for sequences as long as those of the data."""
    require(
        max_length >= source.length,
        f"the data have sequences of {source.length} tokens; {init} is made for {max_length} at most",
    )


def check_llada_fits(start: Model, init: str, source: Source) -> None:
    """A checkpoint of any number of masks and the data that it is to be trained on."""
    assert isinstance(start.process, MultiMask)
    config = start.network.config
    require(
        source.tokenizer.vocab_size <= config.vocab_size and source.length <= config.max_length,
        f"{init} has {config.vocab_size} tokens and {config.max_length} positions; the data have "
        f"{source.tokenizer.vocab_size} and {source.length}",
    )
