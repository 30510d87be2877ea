from .prepared import PreparedData
from .tales import Tales
from .tokenizer import Tokenizer

__all__ = ["PreparedData", "Tales", "Tokenizer"]
