"""A model as users hold it: network, process and tokenizer together."""

from multimdm.pipeline.canvas import Canvas
from multimdm.pipeline.generation import Run, Samples, fill
from multimdm.pipeline.model import Model, load

__all__ = ["Canvas", "Model", "Run", "Samples", "fill", "load"]
