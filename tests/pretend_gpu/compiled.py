"""Compiled functions on the pretend GPU: computed as written, counted as torch's compiler would run them.

The compiler's scheduler is asked which operations it joins into one kernel and what each kernel reads and writes; the
code that it generates is neither built nor run. It is the scheduler for CPUs, since that for GPUs needs one; both join
by the same rules (what reads the same rows goes together), but they may differ in a kernel.
"""

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import jaxtyping
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes


class Schedule(NamedTuple):
    """What one call takes."""

    kernels: int
    bytes: int


class _ScheduledError(BaseException):
    """Out of the compiler, as soon as it has decided."""


def schedule_of(function: Callable, args: tuple[Any, ...]) -> Schedule:
    """By the compiler's own account, for arguments of these shapes."""
    return _schedule(function, tuple(_Like(x.shape, x.dtype) if isinstance(x, Tensor) else x for x in args))


@contextlib.contextmanager
def _without_checks() -> Iterator[None]:
    """Of shapes: the compiler would trace them."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


class _Like(NamedTuple):
    shape: torch.Size
    dtype: torch.dtype


@functools.cache
def _schedule(function: Callable, likes: tuple[Any, ...]) -> Schedule:
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering

    seen: list[Schedule] = []

    def only_schedule(graph: GraphLowering) -> None:
        graph.codegen()
        nodes = graph.scheduler.nodes
        seen.append(Schedule(len(nodes), sum(node.get_read_write_buffers_sizes() for node in nodes)))
        raise _ScheduledError

    args = [torch.empty(x.shape, dtype=x.dtype) if isinstance(x, _Like) else x for x in likes]
    torch._dynamo.reset()
    with (
        _without_checks(),
        warnings.catch_warnings(action="ignore"),  # of the compiler about its own parts
        _disable_current_modes(),
        mock.patch.object(GraphLowering, "compile_to_module", only_schedule),
        config.patch(fx_graph_cache=False),
        contextlib.suppress(_ScheduledError),
    ):
        torch.compile(function, fullgraph=True)(*args)
    (schedule,) = seen
    return schedule
