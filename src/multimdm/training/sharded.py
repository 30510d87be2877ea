"""What is spread over ranks, in files: every rank writes its own shards, and any number of ranks reads what it needs.

torch.distributed.checkpoint settles who writes what, and finds every part again. The files are safetensors, which hold
numbers and nothing else; its usual format has a pickle beside them.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor


class Together:
    """Ranks that write their shards side by side, beside training if need be: they have a group of their own."""

    def __init__(self, ranks: int) -> None:
        group = dist.new_group(backend="gloo")
        assert isinstance(group, dist.ProcessGroup)
        self._group = group
        self._host = DeviceMesh("cpu", torch.arange(ranks), _init_backend=False)

    def copied(self, x: Tensor) -> Tensor:
        """A copy on the host that training does not touch, spread as `x` is; of what is not spread, a whole one."""
        if not isinstance(x, DTensor):
            return x.detach().to("cpu", copy=True)
        own = x.to_local().detach().to("cpu", copy=True)
        return DTensor.from_local(own, self._host, x.placements, run_check=False, shape=x.shape, stride=x.stride())

    def write(self, tensors: Mapping[str, Tensor], directory: Path | None = None) -> None:
        """All ranks must ask; the main one says where. It returns when every rank has written."""
        place: list[str | None] = [None if directory is None else str(directory)]
        dist.broadcast_object_list(place, src=0, group=self._group)
        assert place[0] is not None
        writer = HuggingFaceStorageWriter(place[0], save_distributed=True)
        try:
            save(dict(tensors), storage_writer=writer, process_group=self._group)
        except CheckpointException as error:
            rank, failure = next(iter(error.failures.items()))
            raise OSError(f"rank {rank} could not write its shards: {failure[0]}") from error


def read_shards(directory: Path, spread: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that some ranks wrote: those that are in `spread` as they are spread there, all others whole."""
    reader = HuggingFaceStorageReader(str(directory))
    found = reader.read_metadata().state_dict_metadata
    tensors: dict[str, Tensor] = {
        name: torch.empty_like(spread[name]) if name in spread else torch.empty(kept.size, dtype=kept.properties.dtype)
        for name, kept in found.items()
        if isinstance(kept, TensorStorageMetadata)
    }
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # that nobody is asked, which is meant
        load(tensors, storage_reader=reader, no_dist=True)  # what a rank needs it finds by itself
    return tensors
