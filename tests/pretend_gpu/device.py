"""Tensors of the pretend GPU, and the mode in which they are made.

For torch's own machinery (autograd, autocast) a pretend tensor is a wrapper on the CPU; for Python it is on cuda:0 or,
of Apple's GPU, on mps:0. Every operation on it comes here, is refused if it mixes devices, is counted, and computed by
the CPU. Apple's GPU refuses float64.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

from pretend_gpu.compiled import schedule_of
from pretend_gpu.counts import Counts, site

aten = torch.ops.aten

_WAITS = {
    aten._local_scalar_dense.default,
    aten.equal.default,
    aten.nonzero.default,
    aten.masked_select.default,
    aten.bincount.default,
    aten._unique2.default,
}
"""Give the host a number or a shape that depends on contents."""
_INDEXED = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_, aten._unsafe_index}
"""Take indices from the host too, and copy them."""
_FLASH = 1
"""What a GPU answers when torch asks which attention to use: the fused one."""


class DeviceMismatchError(RuntimeError):
    """Tensors of the host and of the device met in one operation."""


class Float64Error(TypeError):
    """A tensor of float64 came to a device that has none."""


class PretendTensor(torch.Tensor):
    """A tensor of the pretend GPU; `held` is what it computes with."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor, requires_grad: bool = False) -> "PretendTensor":
        wrapper = torch.Tensor._make_wrapper_subclass(  # pyright: ignore[reportAttributeAccessIssue]
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=torch.device("cpu"),
            requires_grad=requires_grad,
        )
        wrapper.held = held
        return wrapper

    def __init__(self, held: Tensor, requires_grad: bool = False) -> None:
        if held.dtype == torch.float64 and _place.type == "mps":
            raise Float64Error(f"{site()} puts float64 on {_place}, which does not have it")

    __torch_function__ = torch._C._disabled_torch_function_impl  # pyright: ignore[reportAssignmentType]

    @property
    def device(self) -> torch.device:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Where it says it is."""
        return _place

    @property
    def is_cuda(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As a GPU's tensor, unless it is Apple's."""
        return _place.type == "cuda"

    def __repr__(self, **_: Any) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        return f"PretendTensor({tuple(self.shape)}, {self.dtype})"

    def to(self, *args: Any, **kwargs: Any) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """To another dtype, or down to the host: torch would find it there already."""
        parse = torch._C._nn._parse_to  # pyright: ignore[reportAttributeAccessIssue]
        device, dtype, _, _ = parse(*[_like(x) for x in args], **_without(kwargs, "copy", "other"))
        if isinstance(kwargs.get("other"), Tensor) or (args and isinstance(args[0], Tensor)):
            other = kwargs.get("other", args[0] if args else None)
            device, dtype = other.device, other.dtype
        moved = _Download.apply(self) if device is not None and device.type == "cpu" else self
        if dtype is not None and dtype != moved.dtype:
            return moved.type(dtype)
        return moved.clone() if kwargs.get("copy") and moved is self else moved

    def cpu(self, *_: Any, **__: Any) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Down to the host."""
        return _Download.apply(self)  # pyright: ignore[reportReturnType]

    def cuda(self, *_: Any, **__: Any) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """It is there."""
        return self

    def tolist(self) -> Any:
        """Down to the host, and on."""
        return self.detach().cpu().tolist()

    def numpy(self, **_: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """As torch does."""
        raise TypeError("can't convert cuda:0 device type tensor to numpy: copy it to the host first")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} was called on a pretend tensor outside of pretend_gpu()")


class _Download(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):  # pyright: ignore[reportIncompatibleMethodOverride]
        _running().waits[f"{site()} to the host"] += 1
        return x.held.detach().clone()

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        return PretendTensor(grad)


class _Mode(TorchDispatchMode):
    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(self.counts, func, args, kwargs or {})


def _run(counts: Counts, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    if func is aten._fused_sdp_choice.default:
        return _FLASH
    if not _concerns(args) and not _concerns(kwargs.values()):
        return func(*args, **kwargs)
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    ours = [x for x in tensors if isinstance(x, PretendTensor)]
    theirs = [x for x in tensors if not isinstance(x, PretendTensor)]
    wanted = kwargs.get("device")
    here = _is_here(func, args, ours, wanted)
    _check(counts, func, kwargs, ours, theirs, here)
    if ours:
        _count_waits(counts, func, args)
    plain = {**kwargs, "device": torch.device("cpu")} if wanted is not None else kwargs
    held_args, held_kwargs = tree_map(_held, (args, plain))
    result = func(*held_args, **held_kwargs)
    if not here:
        return result
    inputs = [x for x in tree_leaves((held_args, _without(held_kwargs, "out"))) if isinstance(x, Tensor)]
    counts.launched(func, inputs, [x for x in tree_leaves(result) if isinstance(x, Tensor)])
    wrapped = tree_map(lambda x: PretendTensor(x) if isinstance(x, Tensor) else x, result)
    return return_and_correct_aliasing(func, args, kwargs, wrapped) if ours else wrapped


def _concerns(values: Iterable[Any]) -> bool:
    """Whether the device has to do with these arguments."""
    for x in values:
        if isinstance(x, PretendTensor) or (isinstance(x, torch.device) and x.type == _place.type):
            return True
        if isinstance(x, list | tuple | dict) and _concerns(x.values() if isinstance(x, dict) else x):
            return True
    return False


def _is_here(func: Any, args: tuple, ours: list, wanted: Any) -> bool:
    """Whether the result is on the device."""
    if func.overloadpacket is aten.copy_:
        return isinstance(args[0], PretendTensor)
    if wanted is None or (func.overloadpacket is aten._to_copy and ours):  # autograd takes it for one of the host
        return bool(ours)
    return torch.device(wanted).type == _place.type


def _check(counts: Counts, func: Any, kwargs: dict[str, Any], ours: list, theirs: list, here: bool) -> None:
    """Refuse what torch refuses; count what it copies by itself."""
    packet = func.overloadpacket
    upload = packet in (aten._to_copy, aten.copy_) and here and bool(theirs)
    mixed = [x for x in theirs if x.ndim > 0] if ours else []
    if packet is aten.copy_ and ours and theirs and not here:
        counts.waits[f"{site()} to the host"] += 1
    elif upload or (mixed and packet in _INDEXED):
        counts.uploads[site()] += 1
    elif mixed and packet is not aten.copy_:
        shapes = [tuple(x.shape) for x in mixed]
        raise DeviceMismatchError(f"{func} at {site()} mixes tensors of {_place} with tensors of the host, {shapes}")
    generator = kwargs.get("generator")
    if here and isinstance(generator, torch.Generator):
        raise DeviceMismatchError(f"{func} at {site()} draws on {_place} by a generator of the host")


def _count_waits(counts: Counts, func: Any, args: tuple) -> None:
    if func in _WAITS:
        counts.waits[f"{site()} {func.overloadpacket.__name__}"] += 1
    if func.overloadpacket in _INDEXED:
        indices = [x for x in args[1] or [] if isinstance(x, Tensor)]
        if any(x.dtype in (torch.bool, torch.uint8) for x in indices):
            counts.waits[f"{site()} index by truth"] += 1


@contextlib.contextmanager
def pretend_gpu(kind: Literal["cuda", "mps"] = "cuda") -> Iterator[Counts]:
    """Inside, cuda:0 or mps:0 is there and counts what it is asked for.

    torch.autocast for it is that of the CPU, which takes the same matrix products to bfloat16.
    """
    global _counts, _place
    before, _counts, _place = (_counts, _place), Counts(), torch.device(kind, 0)
    autocast, make, make_as = torch.autocast, torch.tensor, torch.as_tensor
    with contextlib.ExitStack() as stack:
        for name, value in {
            "cuda._lazy_init": lambda: None,
            "cuda.is_bf16_supported": lambda *_, **__: True,
            "autocast": lambda device, *args, **kwargs: autocast("cpu", *args, **kwargs),
            "tensor": _made_by(make),
            "as_tensor": _made_by(make_as),
            "backends.mps.is_available": lambda: kind == "mps",
            "_C._nn.pad_sequence": _padded_by(torch._C._nn.pad_sequence),  # pyright: ignore[reportAttributeAccessIssue]
        }.items():
            stack.enter_context(mock.patch(f"torch.{name}", value))
        stack.enter_context(mock.patch("multimdm.process.places.has_compiler", return_value=True))
        stack.enter_context(mock.patch("multimdm.process.places.run_compiled", _run_compiled))
        # Otherwise `module.to` would put what is on the device into a tensor of the host.
        overwrite = torch.__future__.get_overwrite_module_params_on_conversion()
        stack.callback(torch.__future__.set_overwrite_module_params_on_conversion, overwrite)
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        stack.enter_context(_Mode(_counts))
        try:
            yield _counts
        finally:
            _counts, _place = before


def _run_compiled(function: Callable, args: tuple[Any, ...], _: bool) -> Any:
    """As written, by the CPU; counted as the compiler would run it."""
    tensors = [x for x in args if isinstance(x, Tensor)]
    theirs = [tuple(x.shape) for x in tensors if not isinstance(x, PretendTensor)]
    if theirs:
        raise DeviceMismatchError(f"{function.__name__} at {site()} mixes devices: {theirs} are of the host")
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        return _Compiled.apply(function, *args)
    with _disable_current_modes():
        return _as_written(function, args)


def _as_written(function: Callable, args: tuple[Any, ...]) -> Any:
    held = tuple(_held(x) for x in args)
    _running().fused(function.__name__, *schedule_of(function, held))
    return tree_map(lambda x: PretendTensor(x) if isinstance(x, Tensor) else x, function(*held))


class _Compiled(torch.autograd.Function):
    """One that is differentiated: the compiler makes a second graph, which is counted as one like the first."""

    @staticmethod
    def forward(ctx, function, *args):  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.function, ctx.args = function, args
        with _disable_current_modes():
            return _as_written(function, args)

    @staticmethod
    def backward(ctx, *grads):  # pyright: ignore[reportIncompatibleMethodOverride]
        held = [_held(x) for x in ctx.args]
        needs = ctx.needs_input_grad[1:]
        wanted = [x.detach().requires_grad_() if need else x for x, need in zip(held, needs, strict=True)]
        _running().fused(f"gradient of {ctx.function.__name__}", *schedule_of(ctx.function, tuple(held)))
        with _disable_current_modes(), torch.enable_grad():
            slopes = torch.autograd.grad(
                ctx.function(*wanted), [x for x, need in zip(wanted, needs, strict=True) if need], _held(grads[0])
            )
        found = iter(slopes)
        return None, *(PretendTensor(next(found)) if need else None for need in needs)


_counts: Counts | None = None
_place = torch.device("cuda", 0)


def _running() -> Counts:
    assert _counts is not None, "no pretend GPU is switched on"
    return _counts


def _made_by(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`torch.tensor`, which makes tensors of the host and copies them where no mode sees it."""

    def made(data: Any, *args: Any, device: Any = None, **kwargs: Any) -> Tensor:
        if isinstance(data, PretendTensor):
            return data.to(**{name: x for name, x in {"device": device, **kwargs}.items() if x is not None})
        tensor = make(data, *args, **kwargs)
        return tensor if device is None else tensor.to(device)

    return made


def _padded_by(pad: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`pad_sequence`, which makes its table by the device that torch's own machinery sees: the host."""

    def padded(sequences: list[Tensor], batch_first: bool, padding: float, side: str) -> Tensor:
        if not isinstance(sequences[0], PretendTensor):
            return pad(sequences, batch_first, padding, side)
        assert batch_first
        assert side == "right"
        longest = max(len(x) for x in sequences)
        table = sequences[0].new_full((len(sequences), longest, *sequences[0].shape[1:]), padding)
        for row, x in zip(table, sequences, strict=True):
            row[: len(x)] = x
        return table

    return padded


def _held(x: Any) -> Any:
    return x.held if isinstance(x, PretendTensor) else x


def _like(x: Any) -> Any:
    return torch.empty(0, dtype=x.dtype) if isinstance(x, Tensor) else x


def _without(kwargs: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: x for name, x in kwargs.items() if name not in names}
