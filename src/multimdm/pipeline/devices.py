"""Where networks compute."""

import os
import re

import torch

from multimdm.pipeline.ranks import launched

_NAME = re.compile(r"auto|cpu|cuda(:\d+)?|mps")
_CHOSEN = "MULTIMDM_DEVICE"
"""The environment variable that says what auto is: training has no other way to leave a GPU alone."""


def find_device(name: str) -> torch.device:
    """The device of this name, once it is known to be there.

    auto is what MULTIMDM_DEVICE says, else a GPU if there is one: NVIDIA's or AMD's, then Apple's, which is for one
    process since it has no way to talk to others.
    """
    chosen = os.environ.get(_CHOSEN, "") if name == "auto" else ""
    name = chosen or name
    if not _NAME.fullmatch(name):
        by = f" from the environment variable {_CHOSEN}" if chosen else ""
        raise ValueError(f"device must be auto, cpu, mps, cuda or cuda:NUMBER; got {name!r}{by}")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if _has_mps() and launched() == 1 else "cpu"
    device = torch.device(name)
    if device.type == "mps":
        if not _has_mps():
            raise ValueError("device mps: there is no Apple GPU that torch can use here; use cpu")
        if launched() > 1:
            raise ValueError("device mps: Apple's GPU works for one process; several ranks need cpu")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise ValueError(f"device {name}: cuda is not available here; use cpu")
        if device.index is not None and launched() > 1:
            raise ValueError(f"device {name}: every rank takes the GPU of its own number; give cuda, or auto")
        count = torch.cuda.device_count()
        if device.index is not None and device.index >= count:
            raise ValueError(f"device {name}: there are {count} GPUs here, cuda:0 to cuda:{count - 1}")
    return device


def _has_mps() -> bool:
    """Whether torch was built for Apple's GPUs and there is one."""
    return torch.backends.mps.is_available()
