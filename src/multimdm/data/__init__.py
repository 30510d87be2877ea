"""Text as the models see it: tokenizers, packed corpora, and Tales."""

from typing import TYPE_CHECKING

from multimdm.lazy import on_demand

if TYPE_CHECKING:
    from multimdm.data.prepared import PreparedData
    from multimdm.data.tales import Tales
    from multimdm.data.tokenizer import Tokenizer

__all__ = ["PreparedData", "Tales", "Tokenizer"]

__getattr__ = on_demand(__name__, {"PreparedData": "prepared", "Tales": "tales", "Tokenizer": "tokenizer"})
