"""What a step of training takes: memory per rank, by what it is for, and arithmetic.

A step is run on tensors that have shapes and no contents, by the objective itself. What is not known without contents
is assumed: for memory, that every position is active; for arithmetic with masks, that half of them are, as on average.
"""

import copy
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from multimdm.models import Backbone
from multimdm.models.head import chunks_as_on_a_gpu
from multimdm.objectives import Batch, Distillation, Objective
from multimdm.process import Streams
from multimdm.training.counting import Memory, arithmetic, without_contents
from multimdm.training.gpus import share_asked
from multimdm.training.outline import Outline
from multimdm.training.settings import TrainSettings
from multimdm.training.step_plan import Parts


@dataclass(frozen=True)
class Estimate:
    """What one run would take."""

    parameters: int
    trained: int
    """How many of the parameters are trained."""
    ranks: int
    micro_batch: int
    """Sequences that one rank works on at once."""
    memory: dict[str, int]
    """What for -> bytes on one rank."""
    flops: float
    """Products and sums of a step, over all ranks, recomputation included."""
    tokens: int
    """Tokens of a step, over all ranks."""
    steps: int

    @property
    def total(self) -> int:
        """All bytes on one rank."""
        return sum(self.memory.values())


def estimate(job: Outline, train: TrainSettings, ranks: int = 1) -> Estimate:
    """What a run takes of a GPU; `job` holds no weights."""
    size = Parts(train.batch_size, train.micro_batch, 0, ranks).size
    _fill_tables(job)
    weights = list(job.network.parameters())
    trained = [x for x in weights if x.requires_grad]
    shared = ranks if train.strategy == "fsdp" else 1
    memory = {
        "weights": _bytes(weights) // shared,
        "gradients": _bytes(trained) // shared,
        "optimiser": 2 * _bytes(trained) // shared,
        "moving average": _bytes(trained) // shared if train.ema else 0,
        "teacher": 0 if job.teacher is None else _bytes(list(job.teacher.parameters())) // shared,
        "exchange between ranks": _exchanged(job.network, train, ranks),
        "activations": activations(job, train, size),
    }
    return Estimate(
        sum(x.numel() for x in weights),
        sum(x.numel() for x in trained),
        ranks,
        size,
        {name: size for name, size in memory.items() if size},
        _flops(job, train, share_asked(job.process), size),
        train.batch_size * job.texts.length,
        train.steps,
    )


def activations(job: Outline, train: TrainSettings, size: int) -> int:
    """Bytes beside weights and gradients, at most, while a rank works on so many sequences."""
    with without_contents(), chunks_as_on_a_gpu():
        step = _Step(job, train, size)
        for weight in step.network.parameters():
            weight.grad = torch.empty_like(weight) if weight.requires_grad else None
        with Memory() as memory:
            memory.leave_out([*step.network.parameters(), *step.gradients])
            step.run()
        return memory.peak


def _flops(job: Outline, train: TrainSettings, share: float, size: int) -> float:
    """Products and sums of a step in parts of this size: so much per sequence, and so much per part, however large."""
    counts = []
    for number in (1, 2):
        with without_contents(share), arithmetic() as counter:
            _Step(job, train, number).run()
        counts.append(counter.get_total_flops())
    each = counts[1] - counts[0]
    return float(each * train.batch_size + (counts[0] - each) * (train.batch_size // size))


def _batch(job: Outline, size: int, length: int) -> Batch:
    ids = torch.zeros(size, length, dtype=torch.long)
    x_1 = ids + job.texts.vocab_size if getattr(job.process, "tied_noise", False) else None
    times = torch.full((size,), 0.5, dtype=torch.float64)
    return Batch(ids, None, times, Streams(range(size)), x_1=x_1)


class _Reached(Exception):  # noqa: N818 (nothing is wrong)
    """The objective has come to its network."""


def _fill_tables(job: Outline) -> None:
    """Tables that an objective computes once and keeps must have contents: they are asked for before all else."""

    def network(*_: Any, **__: Any) -> None:
        raise _Reached

    objective = job.objective.taught_by(network) if isinstance(job.objective, Distillation) else job.objective
    with suppress(_Reached):
        objective(network, _batch(job, 1, 1))


class _Step:
    """Forward and backward over one part of a batch."""

    def __init__(self, job: Outline, train: TrainSettings, size: int) -> None:
        self.network = _with_new_weights(job.network).train()
        self.network.recompute = train.recompute
        objective = job.objective
        if isinstance(objective, Distillation):
            assert job.teacher is not None
            objective = objective.taught_by(_with_new_weights(job.teacher).requires_grad_(False).eval())
        self._objective: Objective = objective
        self._batch = _batch(job, size, job.texts.length)
        self._bfloat16 = train.precision != "float32"

    @property
    def gradients(self) -> list[Tensor]:
        """The gradients of the weights."""
        return [x.grad for x in self.network.parameters() if x.grad is not None]

    def run(self) -> None:
        """Add to the gradients."""
        with torch.autocast("cpu", torch.bfloat16) if self._bfloat16 else nullcontext():
            loss = self._objective(self.network, self._batch).loss
        loss.backward()


def _with_new_weights(network: Backbone) -> Backbone:
    """The same network with weights that have no contents, of the kind that is being made here."""
    old = {id(x): x for x in (*network.parameters(), *network.buffers())}
    own = copy.deepcopy(network, old)
    for module in own.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                empty = torch.empty(weight.shape, dtype=weight.dtype)
                module._parameters[name] = nn.Parameter(empty, requires_grad=weight.requires_grad)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype)
    return own


def _exchanged(network: Backbone, train: TrainSettings, ranks: int) -> int:
    """DDP copies gradients into buckets; FSDP gathers two blocks at a time, and what is in no block for good."""
    if ranks == 1:
        return 0
    if train.strategy == "ddp":
        return _bytes([x for x in network.parameters() if x.requires_grad])
    in_blocks = [_bytes(list(block.parameters())) for block in network.blocks]
    return _bytes(list(network.parameters())) - sum(in_blocks) + 2 * max(in_blocks)


def _bytes(tensors: Sequence[Any]) -> int:
    return sum(x.numel() * x.element_size() for x in tensors)
