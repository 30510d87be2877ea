"""Stages done by any number of processes: each takes what is ready and what no other works on."""

import time
from collections.abc import Sequence
from pathlib import Path

from multimdm.pipeline.ranks import speaks
from multimdm.reproduce.locks import locked
from multimdm.reproduce.stages import Stage
from multimdm.training.overall import Overall

_SECONDS_BETWEEN_LOOKS = 5.0


def work(stages: Sequence[Stage], locks: Path) -> None:
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
