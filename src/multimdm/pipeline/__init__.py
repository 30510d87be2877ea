"""A model as users hold it: network, process and tokenizer together."""

from multimdm.pipeline.model import Model, load

__all__ = ["Model", "load"]
