"""Networks that predict clean tokens from noisy ones, and exchange of their weights with other projects."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
