"""Text as the models see it: tokenizers, packed corpora, and Tales."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
