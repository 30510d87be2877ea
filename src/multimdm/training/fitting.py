"""Whether a checkpoint and the data that it is to be trained on fit together."""

from multimdm._checks import require
from multimdm.data.tokenizer import Tokenizer
from multimdm.training.sources import Source


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
