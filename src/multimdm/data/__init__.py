"""Text as the models see it: tokenizers, packed corpora, and Tales."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multimdm.data.prepared import PreparedData
    from multimdm.data.tales import Tales
    from multimdm.data.tokenizer import Tokenizer

__all__ = ["PreparedData", "Tales", "Tokenizer"]


def __getattr__(name: str) -> object:
    """Import on demand: `multimdm prepare --help` must not wait for torch."""
    from importlib import import_module

    modules = {"PreparedData": "prepared", "Tales": "tales", "Tokenizer": "tokenizer"}
    if name in modules:
        return getattr(import_module(f"multimdm.data.{modules[name]}"), name)
    raise AttributeError(f"module 'multimdm.data' has no attribute '{name}'")
