"""What is to be known of a low-rank adapter besides its tensors."""

from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Adapter:
    """LoRA on the projections of all blocks, and rows of its own for the masks."""

    rank: Annotated[int, Field(gt=0)] = 8
    alpha: Annotated[float, Field(gt=0)] = 16.0
    """What LoRA adds is multiplied by alpha / rank."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Of LoRA's input, in training."""
    base: str = ""
    """The network that it was made for: a directory or a name on the Hub."""
    base_digest: str = ""
    """A hash of some of its weights: on another base the adapter would be noise."""
