"""Samplers: one loop, and the steps that it takes. They know processes and any callable network, no network class."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
