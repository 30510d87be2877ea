"""Work that the ranks of a launcher share out among themselves: sampling and measuring under torchrun.

Every rank has the whole model. The parts of a piece of work (batches, as one process would make them) go to the ranks
in turn, and all ranks get all results in their order. A part is the same whoever works on it, so the figures are those
of one process, bit for bit on equal machines. Training shares out its work by other means (`training/engine.py`), and a
library user's process shares nothing unless it says so: `with sharing(): model.sample(...)`.
"""

import io
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

Item = TypeVar("Item")
Result = TypeVar("Result")

_PATIENCE = timedelta(days=1)
"""How long ranks wait for the slowest. One that has died is the launcher's to notice: it ends the others."""
_JOINED = itertools.count()
"""How often this process met others."""


@dataclass(frozen=True)
class Ranks:
    """Who shares the work."""

    rank: int = 0
    ranks: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this rank writes and prints."""
        return self.rank == 0


_ALONE = Ranks()
_sharing: ContextVar[Ranks] = ContextVar("ranks", default=_ALONE)


def speaks() -> bool:
    """Whether this process speaks for all ranks of its launcher, whatever they do together."""
    return os.environ.get("RANK", "0") == "0"


def launched() -> int:
    """How many ranks the launcher started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def current() -> Ranks:
    """Who shares the work that is done now."""
    return _sharing.get()


@contextmanager
def sharing() -> Iterator[Ranks]:
    """Share out the work of this block among the ranks that torchrun started, if there are several.

    They talk over gloo, wherever networks compute: what they tell each other is small.
    """
    if launched() == 1 or current().ranks > 1:  # alone, or within such a block already
        yield current()
        return
    join_ranks("gloo", _PATIENCE)
    token = _sharing.set(Ranks(dist.get_rank(), dist.get_world_size()))
    try:
        yield _sharing.get()
    finally:
        _sharing.reset(token)
        part_ranks()


def shared(
    items: Iterable[Item], work: Callable[[Item], Result], device: torch.device | str | None = None
) -> list[Result]:
    """`[work(item) for item in items]`, each done by one rank. Tensors of several ranks come to `device` (the CPU).

    Work within the work is not shared any further.
    """
    us = current()
    if us.ranks == 1:
        return [work(item) for item in items]
    token = _sharing.set(_ALONE)
    try:
        own = [work(item) for number, item in enumerate(items) if number % us.ranks == us.rank]
    finally:
        _sharing.reset(token)
    gathered: list[Any] = [None] * us.ranks
    dist.all_gather_object(gathered, _packed(own))
    found = [_unpacked(part, device) for part in gathered]
    return [found[number % us.ranks][number // us.ranks] for number in range(sum(map(len, found)))]


def agreed(value: Result) -> Result:
    """The main rank's value on all ranks: what they do next must not depend on which of them asks."""
    if current().ranks == 1:
        return value
    box = [_packed(value)]
    dist.broadcast_object_list(box, src=0)
    return _unpacked(box[0], None)


def join_ranks(backend: str, patience: timedelta | None = None) -> None:
    """Meet the other ranks, if torchrun started several; each takes the GPU of its number.

    Processes that torchrun starts again after a death find the old ones' addresses in its store and wait for them for
    ever, and so do those that part and meet again; so on one node every meeting has its own corner of the store. Nodes
    count their attempts separately: with several, the launcher must be told not to share its store (docs/scaling.md).

    A group lives until nobody holds it, and its threads with it; one that still works when Python ends aborts the
    process. The functions of `torch.distributed.nn` hold the group that is there when they are imported, so they are
    imported before there is one.
    """
    if launched() == 1 or dist.is_initialized():
        return
    import torch.distributed.nn.functional
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    store, rank, ranks = next(rendezvous("env://"))
    if os.environ.get("GROUP_WORLD_SIZE", "1") == "1":
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = PrefixStore(f"attempt {attempt}, meeting {next(_JOINED)}", store)
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=patience)


def part_ranks() -> None:
    """Leave the group. A barrier would wait for dead ranks."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _packed(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def _unpacked(content: bytes, device: torch.device | str | None) -> Any:
    """What a rank of our own launcher sent, so that it may be any object."""
    return torch.load(io.BytesIO(content), map_location="cpu" if device is None else device, weights_only=False)
