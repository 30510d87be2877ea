"""A small network and batch for objectives that distil."""

import torch

from multimdm.models import DiT
from multimdm.objectives import Batch
from multimdm.process import MultiMask, Process, Schedule, Streams, Uniform
from support.tiny_models import tiny_dit

V, B, L = 23, 6, 7
PROCESSES = {"mdlm": MultiMask(V, 1), "M=3": MultiMask(V, 3, Schedule(rho=0.6)), "uniform": Uniform(V)}


def network(process: Process, dtype: torch.dtype = torch.float64, seed: int = 0) -> DiT:
    return tiny_dit(V, process.num_masks, L, seed=seed).to(dtype)


def batch(padded: bool = False, seed: int = 3) -> Batch:
    """In the second of two rounds."""
    ids = torch.randint(0, V, (B, L), generator=torch.Generator().manual_seed(1))
    valid = torch.arange(L) < torch.tensor([7, 5, 7, 1, 3, 6])[:, None] if padded else None
    return Batch(ids, valid, torch.linspace(0.1, 0.9, B, dtype=torch.float64), Streams.spawn(seed, B), 50, 100)
