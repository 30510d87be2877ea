"""Processes that work side by side: each takes stages that no other works on, and a GPU of its own."""

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from multimdm.pipeline.ranks import speaks
from multimdm.reproduce.stages import Stage
from multimdm.training.overall import Overall

_SECONDS_BETWEEN_LOOKS = 5.0


def do_all(stages: Sequence[Stage], locks: Path) -> None:
    """Until all stages are done, by this process or by others that were given the same ones.

    A lock goes with the process that holds it, so a stage whose process was killed is taken up by another.
    """
    pending = {stage.name: stage for stage in stages}
    waiting = False
    with Overall({stage.name: stage.cost for stage in stages}) as overall:
        while pending:
            for name in [name for name, stage in pending.items() if stage.done()]:
                overall.skip(name)
                del pending[name]
            taken = next((stage for stage in _ready(pending) if _take(stage, locks, overall)), None)
            if taken is not None:
                waiting = False
                del pending[taken.name]
            elif pending:
                if not waiting:
                    overall.say(f"waiting for other processes, which work on: {', '.join(pending)}")
                waiting = True
                time.sleep(_SECONDS_BETWEEN_LOOKS)


def do_one(stage: Stage, locks: Path) -> None:
    """A single stage; refused while another process works on it, other than a rank of ours."""
    if stage.done():
        return
    with Overall({stage.name: stage.cost}) as overall:
        if not speaks():
            stage.run(overall)
        elif not _take(stage, locks, overall):
            raise ValueError(f"another process works on the stage '{stage.name}'")


def _ready(pending: dict[str, Stage]) -> list[Stage]:
    """Those whose needs are no longer pending, in their order."""
    return [stage for stage in pending.values() if not any(need in pending for need in stage.needs)]


def _take(stage: Stage, locks: Path, overall: Overall) -> bool:
    """Do it, unless another process has it; whether it is done now."""
    with locked(locks / f"{stage.name}.lock") as free:
        if not free:
            return False
        if stage.done():  # by another process, a moment ago
            overall.skip(stage.name)
        else:
            stage.run(overall)
        return True


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Whether the lock could be had. It is held until the end, and never outlives the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Where files cannot be locked, the library's substitute would stay behind when a process is killed.
    lock = FileLock(path, timeout=0, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


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
