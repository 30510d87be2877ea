"""Devices, ranks, precision and sharding: all that torch.distributed does for the loop is in this file.

The loop sees one network that it calls, and sums over ranks. torchrun or accelerate launch starts several ranks; each
has all weights (DDP) or a share of them (FSDP), as the recipe says. A request to stop that one rank has heard travels
to all with the sums of a step.
"""

import gc
import sys
import traceback
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from multimdm._stopping import Listener
from multimdm.models import Backbone, rebuilt
from multimdm.models.arithmetic import has_bfloat16
from multimdm.pipeline.devices import find_device
from multimdm.pipeline.ranks import join_ranks, launched, part_ranks
from multimdm.process.places import home_of
from multimdm.training.settings import TrainSettings
from multimdm.training.sharded import Together

_MOMENTS = ("exp_avg", "exp_avg_sq", "step")
"""What AdamW remembers of a weight."""
_OUTLIVED: list[Any] = []
"""Groups of ranks whose wrapped network someone still holds."""


class Engine:
    """A network where it is to be trained, its optimiser, and the ranks that train it."""

    def __init__(self, network: Backbone, train: TrainSettings) -> None:
        device = find_device("auto")
        join_ranks("nccl" if device.type == "cuda" else "gloo")
        self.ranks = launched()
        self.rank = dist.get_rank() if self.ranks > 1 else 0
        self.is_main = self.rank == 0
        several_gpus = self.ranks > 1 and device.type == "cuda"  # each rank has taken the one of its number
        self.device = torch.device("cuda", torch.cuda.current_device()) if several_gpus else device
        self.home = home_of(self.device)
        """Where texts, states and times are: beside the network, or on the CPU if its device has no float64."""
        self.bfloat16 = train.precision == "bfloat16" or (
            train.precision == "auto" and self.device.type == "cuda" and has_bfloat16(self.device)
        )
        self.sharded = train.strategy == "fsdp" and self.ranks > 1
        self._mesh = init_device_mesh(self.device.type, (self.ranks,)) if self.sharded else None
        self.together = Together(self.ranks) if self.sharded else None
        """Who writes checkpoints, if every rank writes its own part."""
        self._fused = has_fused_adamw(self.device, self.sharded)
        self._compiled = train.compile
        self.network = self.place(network).train()
        self.network.recompute = train.recompute
        self._callable: Any = self.network
        if self.ranks > 1 and not self.sharded:
            self._callable = DistributedDataParallel(self.network, [self.device] if several_gpus else None)
        # Of a network with an adapter, the adapter alone is trained.
        trained = [(name, x) for name, x in self.network.named_parameters() if x.requires_grad]
        self.names, self.weights = [name for name, _ in trained], [x for _, x in trained]
        self.optimizer = torch.optim.AdamW(
            self.weights,
            lr=train.learning_rate,
            betas=train.betas,
            weight_decay=train.weight_decay,
            fused=self._fused,
        )

    def place(self, network: Backbone) -> Backbone:
        """A network on the device of this rank, compiled and sharded as the recipe says."""
        network = network.to(self.device)
        if self._compiled:
            for block in network.blocks:
                block.compile()
        if self._mesh is not None:
            # Blocks are gathered in the precision that they compute in: half the bytes between ranks. Gradients are
            # summed over ranks in float32, and what blocks hand on stays as it is.
            half = torch.bfloat16 if self.bfloat16 else None
            policy = MixedPrecisionPolicy(half, torch.float32 if half else None, cast_forward_inputs=False)
            for block in network.blocks:
                fully_shard(block, mesh=self._mesh, mp_policy=policy)
            fully_shard(network, mesh=self._mesh)
            for method in ("features", "logits"):
                register_fsdp_forward_method(network, method)
        return network

    # ---------------------------------------------------------------- a step

    def __call__(self, *args: Any) -> Any:
        """Run the network in the precision of the run."""
        with self.autocast():
            return self._callable(*args)

    def evaluated(self, *args: Any) -> Any:
        """Run it without the machinery that waits for a backward pass."""
        with self.autocast():
            return self.network(*args)

    def autocast(self) -> Any:
        """The precision of the run."""
        return torch.autocast(self.device.type, torch.bfloat16) if self.bfloat16 else nullcontext()

    @contextmanager
    def accumulating(self, last: bool) -> Iterator[None]:
        """Ranks exchange gradients in the last backward pass of a step only."""
        if self.sharded:
            assert isinstance(self.network, FSDPModule)
            self.network.set_requires_gradient_sync(last)
        quiet = isinstance(self._callable, DistributedDataParallel) and not last
        with self._callable.no_sync() if quiet else nullcontext():
            yield

    def gradient_norm(self, clip: float | None) -> float:
        """The norm of the gradient before it is clipped."""
        norm = torch.nn.utils.clip_grad_norm_(self.weights, torch.inf if clip is None else clip)
        return float(full(norm))

    def update(self, rate: float) -> None:
        """One step of the optimiser."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Without dropout and gradients. Shards that were gathered are given up before and after weights change.

        Shards are gathered in the precision of the run, so all who call the network in here compute in it.
        """
        self.network.eval()
        self.reshard(self.network)
        try:
            with torch.no_grad(), self.autocast() if self.sharded else nullcontext():
                yield
        finally:
            self.reshard(self.network)
            self.network.train()

    @staticmethod
    def reshard(network: Backbone) -> None:
        """Give up shards that were gathered: they are of weights that are to change or have changed."""
        for module in network.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    # ----------------------------------------------------------------- ranks

    def sum(self, x: Tensor) -> Tensor:
        """Over ranks; on the CPU."""
        if self.ranks > 1:
            x = x.to(self.device, copy=True)
            dist.all_reduce(x)
        return x.cpu()

    def agree(self, value: Any) -> Any:
        """The main rank's value, on all ranks."""
        if self.ranks == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]

    def close(self) -> None:
        """Leave the group of ranks; the engine trains no more.

        Whoever lets go of the group last waits for its threads, and a thread may still wait for the interpreter, to let
        go of a tensor that it summed. torch frees the interpreter if that last one is a Python object, but not if it is
        the C++ part of DDP: process and thread then wait for each other for ever. So DDP goes first.
        """
        if self.ranks == 1:
            return
        wrapped = weakref.ref(self._callable)
        self._callable, self.together = self.network, None
        if (error := sys.exception()) is not None:
            traceback.clear_frames(error.__traceback__)  # which hold what was called when it was raised
        gc.collect()
        group = dist.group.WORLD if isinstance(wrapped(), DistributedDataParallel) else None
        part_ranks()
        if group is not None:
            _OUTLIVED.append(group)

    # ----------------------------------------------------------------- state

    def state(self) -> dict[str, Tensor]:
        """Everything the optimiser knows, and the weights, on the CPU; shards stay shards."""
        tensors = {f"weights.{name}": x for name, x in zip(self.names, self.weights, strict=True)}
        for name, weight in zip(self.names, self.weights, strict=True):
            for moment in _MOMENTS:
                tensors[f"{moment}.{name}"] = self.optimizer.state[weight][moment]
        return self.copied(tensors)

    def copied(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copies on the CPU of what this rank is to write; what every rank has, the main one writes."""
        if self.together is None:
            return {name: x.detach().cpu() for name, x in tensors.items()}
        own = {name: x for name, x in tensors.items() if self.is_main or isinstance(x, DTensor)}
        return {name: self.together.copied(x) for name, x in own.items()}

    def spread(self) -> dict[str, Tensor]:
        """What of `state` is spread over ranks, and how."""
        if not self.sharded:
            return {}
        kinds = ("weights", *_MOMENTS[:2])
        return {f"{kind}.{name}": x for name, x in zip(self.names, self.weights, strict=True) for kind in kinds}

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up what `state` gave."""
        for name, weight in zip(self.names, self.weights, strict=True):
            weight.copy_(like(tensors[f"weights.{name}"], weight))
            self.optimizer.state[weight] = {
                moment: like(tensors[f"{moment}.{name}"], weight) for moment in _MOMENTS[:2]
            } | {"step": tensors[f"step.{name}"].to(self.device if self._fused else "cpu")}

    def whole_network(self, weights: Sequence[Tensor]) -> Backbone | None:
        """A network on the CPU with these weights (the average, say) in place of its own, for the main rank.

        All ranks must ask; the others only lend their shards.
        """
        gathered = (full(x.detach()) for x in weights)
        whole = {name: x.cpu() for name, x in zip(self.names, gathered, strict=True) if self.is_main}
        return rebuilt(self.network, whole) if self.is_main else None


def has_fused_adamw(device: torch.device, sharded: bool) -> bool:
    """Whether AdamW updates all weights by few kernels, which count steps on the device: not for shards on a CPU."""
    return not sharded or device.type == "cuda"


def full(x: Tensor) -> Tensor:
    """All of a tensor that may be spread over ranks."""
    return x.full_tensor() if isinstance(x, DTensor) else x


def like(whole: Tensor, weight: Tensor) -> Tensor:
    """A whole tensor, spread over ranks as `weight` is; one that is spread stays so."""
    if isinstance(whole, DTensor):
        return whole
    whole = whole.to(weight.device)
    if not isinstance(weight, DTensor):
        return whole.clone()
    return distribute_tensor(whole, weight.device_mesh, weight.placements, src_data_rank=None)


class Signals(Listener):
    """Listens for requests to stop while a run lasts."""

    def __init__(self) -> None:
        super().__init__("the step is finished and saved")
        self.stopping = False
        """Whether all ranks are to stop after this step."""

    def __enter__(self) -> "Signals":
        super().__enter__()
        return self

    def sum(self, engine: Engine, values: Tensor) -> Tensor:
        """The sum over ranks that every step needs; a request that any rank has heard travels with it to all."""
        if engine.ranks == 1:
            self.stopping = self.asked
            return engine.sum(values)
        sums = engine.sum(torch.cat([values, values.new_tensor([float(self.asked)])]))
        self.stopping = bool(sums[-1] > 0)
        return sums[:-1]
