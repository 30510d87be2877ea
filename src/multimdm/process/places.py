"""What depends on the device: where numbers are kept and how precisely, rows worked on at once, what is compiled.

Numbers are kept beside the network or, if its device has no float64, at home on the CPU.

Times, schedules and draws are float64, which Apple's GPUs do not have. Of a network there, all that is exact stays on
the CPU, with the states: what belongs to a sequence or a position is small. The network and everything with a
column per token are on the device. Three things cross the border, and no float64 does:

    what a network is shown (`brought`), when it is called;
    what a row of a table is read for (`beside`) and the few numbers that it gives (`reading`, `exact`);
    what is kept of chunks of logits (`at_home`), once, in the head.

Everywhere else home is the device itself, and all of these do nothing.

Written in torch, a reduction over the vocabulary reads and writes whole tables between its operations. On a GPU
torch.compile joins them (`fused`), so that a table is read once per pass. The number of rows may change from call to
call, all other sizes may not: one compiled graph serves a whole run.
"""

import functools
import importlib.util
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from multimdm.process.values import Mixture, NoisyMixture

Result = TypeVar("Result")
Read = TypeVar("Read", bound=Callable[..., Any])
Input = TypeVar("Input", bound=Tensor | Mixture | NoisyMixture | None)

ENTRIES_ON_A_GPU = 2**27
"""256 MB in bfloat16. What samplers do to rows (sorting them, say) takes many times that."""
TRAINED_ON_A_GPU = 2**29
"""1 GB, where a loss is differentiated: a chunk takes some fifty launches and reads the head's weights three times."""


def has_float64(device: torch.device) -> bool:
    """Whether tensors of float64 can be there."""
    return device.type != "mps"


def home_of(device: torch.device) -> torch.device:
    """Where states, times and random numbers are kept for a network on this device."""
    return device if has_float64(device) else torch.device("cpu")


def at_home(x: Tensor) -> Tensor:
    """`x` where exact numbers are."""
    return x if has_float64(x.device) else x.cpu()


def exact(x: Tensor) -> Tensor:
    """`x` in float64, where that is possible."""
    return at_home(x).double()


def beside(x: Tensor, table: Tensor) -> Tensor:
    """`x`, which is kept at home, where the table is; float64 is rounded to float32 if it is unknown there."""
    if has_float64(table.device):
        return x
    return (x.float() if x.dtype == torch.float64 else x).to(table.device)


def reading(read: Read) -> Read:
    """A function of tables, and of numbers about their rows, that gives a few numbers per row: these go home."""

    @functools.wraps(read)
    def call(*args: Any) -> Any:
        table = next(x for x in args if isinstance(x, Tensor))
        if has_float64(table.device):
            return read(*args)
        result = read(*(beside(x, table) if isinstance(x, Tensor) else x for x in args))
        return tuple(at_home(x) for x in result) if isinstance(result, tuple) else at_home(result)

    return call  # pyright: ignore[reportReturnType]


def brought(x: Input, weight: Tensor) -> Input:
    """What a network is shown, brought from home to where its weights are."""
    if x is None:
        return x
    if isinstance(x, Tensor):
        return beside(x, weight)  # pyright: ignore[reportReturnType]
    return type(x)(*(beside(part, weight) for part in x))  # pyright: ignore[reportReturnType]


def widened(x: Tensor) -> Tensor:
    """`x` in float32 or better: sums of bfloat16 probabilities lose the digits that they are made for."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def chunk_rows(columns: int, on: Tensor, entries_on_a_cpu: int, trained: bool = False) -> int:
    """How many rows are worked on at once: at least one, and on a CPU as many as make the best of its caches."""
    on_a_gpu = TRAINED_ON_A_GPU if trained else ENTRIES_ON_A_GPU
    return max(1, (on_a_gpu if on.is_cuda else entries_on_a_cpu) // columns)


def fused(function: Callable[..., Result], any_shape: bool = False) -> Callable[..., Result]:
    """A function of tensors with equally many rows, [n, ...] (or one), compiled where its first argument asks for it.

    It may be differentiated. What is no tensor among its arguments is a constant of the compiled graph, as are all
    sizes but the number of rows; with `any_shape`, for functions of single entries, no size is.
    """

    @functools.wraps(function)
    def call(*args: Any) -> Result:
        return run_compiled(function, args, any_shape) if fuses(args[0]) else function(*args)

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
