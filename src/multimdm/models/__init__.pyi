from .config import SIZES, DiTConfig
from .dit import DiT, Mixture, start_copying
from .expand import (
    code_masks,
    expand_masks,
    fade_masks,
    gate_time,
    look_both_ways,
    resemble_tokens,
    show_noise,
    tell_masks_apart,
    with_dropout,
)
from .llada import LLaDA
from .llada_config import Adapter, LLaDAConfig
from .rebuild import Backbone, rebuilt
from .remembering import Remembering

__all__ = [
    "SIZES",
    "Adapter",
    "Backbone",
    "DiT",
    "DiTConfig",
    "LLaDA",
    "LLaDAConfig",
    "Mixture",
    "Remembering",
    "code_masks",
    "expand_masks",
    "fade_masks",
    "gate_time",
    "look_both_ways",
    "rebuilt",
    "resemble_tokens",
    "show_noise",
    "start_copying",
    "tell_masks_apart",
    "with_dropout",
]
