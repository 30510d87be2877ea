"""Networks that predict clean tokens from noisy ones, and exchange of their weights with other projects."""

from typing import TYPE_CHECKING

from multimdm.lazy import on_demand

if TYPE_CHECKING:
    from multimdm.models.config import SIZES, DiTConfig
    from multimdm.models.dit import DiT
    from multimdm.models.expand import (
        code_masks,
        expand_masks,
        gate_time,
        look_both_ways,
        resemble_tokens,
        show_noise,
        tell_masks_apart,
        with_dropout,
    )
    from multimdm.models.initialise import start_copying
    from multimdm.models.llada import LLaDA
    from multimdm.models.llada_adapter import Adapter
    from multimdm.models.llada_config import LLaDAConfig
    from multimdm.models.rebuild import Backbone, rebuilt
    from multimdm.process import Mixture

__all__ = [
    "SIZES",
    "Adapter",
    "Backbone",
    "DiT",
    "DiTConfig",
    "LLaDA",
    "LLaDAConfig",
    "Mixture",
    "code_masks",
    "expand_masks",
    "gate_time",
    "look_both_ways",
    "rebuilt",
    "resemble_tokens",
    "show_noise",
    "start_copying",
    "tell_masks_apart",
    "with_dropout",
]

__getattr__ = on_demand(
    __name__,
    {
        "Adapter": "llada_adapter",
        "Backbone": "rebuild",
        "DiT": "dit",
        "DiTConfig": "config",
        "LLaDA": "llada",
        "LLaDAConfig": "llada_config",
        "Mixture": "dit",
        "SIZES": "config",
        "code_masks": "expand",
        "expand_masks": "expand",
        "gate_time": "expand",
        "look_both_ways": "expand",
        "rebuilt": "rebuild",
        "resemble_tokens": "expand",
        "show_noise": "expand",
        "start_copying": "initialise",
        "tell_masks_apart": "expand",
        "with_dropout": "expand",
    },
)
