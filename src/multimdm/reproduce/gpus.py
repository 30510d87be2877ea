"""Processes that work on one machine side by side: each takes a GPU of its own."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import torch

from multimdm.reproduce.locks import locked


@contextmanager
def own_gpu() -> Iterator[None]:
    """Compute on a GPU that no other process of ours has, where there are several and no launcher chooses."""
    names = gpu_names()
    if len(names) < 2 or "LOCAL_RANK" in os.environ:
        yield
        return
    with claimed(names, _folder()) as number:
        torch.cuda.set_device(number)
        yield


@contextmanager
def claimed(names: list[str], folder: Path) -> Iterator[int]:
    """The place of a GPU in the list that fewest processes have claimed; it is ours until the end.

    A GPU has as many places as there are processes: the first of all GPUs are taken before the second of any.
    """
    for place in count():
        for number, name in enumerate(names):
            with locked(folder / f"{name}-{place}.lock") as free:
                if free:
                    yield number
                    return


def gpu_names() -> list[str]:
    """Of those that this process sees, as other processes know them too."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    seen = torch.cuda.device_count()
    names = visible.split(",") if visible else [str(number) for number in range(seen)]
    return [name.strip().replace("/", "-") for name in names][:seen]


def _folder() -> Path:
    """On this machine, unlike the results."""
    return Path(tempfile.gettempdir()) / f"multimdm-gpus-{os.getuid()}"
