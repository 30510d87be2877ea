"""Functions of rows that a GPU runs as a few compiled kernels, and everything else as they are written.

Written in torch, a reduction over the vocabulary reads and writes whole tables between its operations. On a GPU
torch.compile joins them, so that a table is read once per pass. The number of rows may change from call to call, all
other sizes may not: one compiled graph serves a whole run.
"""

import functools
import importlib.util
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")


def fused(function: Callable[..., Result]) -> Callable[..., Result]:
    """A function of tensors with equally many rows, [n, ...] (or one), compiled where its first argument asks for it.

    It may be differentiated. What is no tensor among its arguments is a constant of the compiled graph.
    """

    @functools.wraps(function)
    def call(*args: Any) -> Result:
        return run_compiled(function, args, False) if fuses(args[0]) else function(*args)

    return call


def fused_of_any_shape(function: Callable[..., Result]) -> Callable[..., Result]:
    """A function of single entries, compiled like `fused`: no size at all is a constant of its graph."""

    @functools.wraps(function)
    def call(*args: Any) -> Result:
        return run_compiled(function, args, True) if fuses(args[0]) else function(*args)

    return call


def fuses(x: Tensor) -> bool:
    """Whether work on this tensor is compiled: on a GPU with a compiler, for more than one row."""
    return x.is_cuda and x.ndim > 0 and len(x) > 1 and has_compiler()


@functools.cache
def has_compiler() -> bool:
    """Triton, which torch's builds for GPUs bring along, on GPUs that it knows (Volta and later)."""
    if importlib.util.find_spec("triton") is None or not torch.cuda.is_available():
        return False
    return torch.version.hip is not None or torch.cuda.get_device_capability() >= (7, 0)


def run_compiled(function: Callable[..., Result], args: tuple[Any, ...], any_shape: bool) -> Result:
    """Run the function by one compiled graph, which serves any number of rows or, with `any_shape`, any shape."""
    if not any_shape:
        for x in args:
            if isinstance(x, Tensor):
                torch._dynamo.maybe_mark_dynamic(x, 0)
    return _compiled(function, any_shape)(*args)


@functools.cache
def _compiled(function: Callable[..., Result], any_shape: bool) -> Callable[..., Result]:
    return torch.compile(function, dynamic=True if any_shape else None)
