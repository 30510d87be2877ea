"""Networks that predict clean tokens from noisy ones, and exchange of their weights with other projects."""

from multimdm.models.config import SIZES, DiTConfig
from multimdm.models.dit import DiT
from multimdm.models.expand import expand_masks, gate_time, with_dropout
from multimdm.process import Mixture

__all__ = ["SIZES", "DiT", "DiTConfig", "Mixture", "expand_masks", "gate_time", "with_dropout"]
