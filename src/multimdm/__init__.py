"""Few-step diffusion language models."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multimdm.pipeline import Model, load

__version__ = "0.2.0"
__all__ = ["Model", "load"]


def __getattr__(name: str) -> object:
    """Import torch only when a model is wanted, so that the command line answers at once."""
    if name in __all__:
        from multimdm import pipeline

        return getattr(pipeline, name)
    raise AttributeError(f"module 'multimdm' has no attribute '{name}'")
