"""From names to what is to be done, and doing it."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from multimdm.evaluation.conditional_entropy import Study
from multimdm.reproduce.comparison import Comparison
from multimdm.reproduce.entropy_study import EntropyStudy
from multimdm.reproduce.gpus import own_gpu
from multimdm.reproduce.places import Places
from multimdm.reproduce.scale import AS_RECIPES_SAY, Execution, read_scale
from multimdm.reproduce.spec import read_spec
from multimdm.reproduce.stages import Stage
from multimdm.reproduce.workers import do_one, work


@runtime_checkable
class Work(Protocol):
    """A specification at a scale."""

    def check(self) -> None:
        """Refuse what is wrong before anything is done."""
        ...

    def stages(self) -> list[Stage]:
        """In an order in which they can be done."""
        ...

    def write(self) -> Path:
        """Tables and figures, when all stages are done; returns their directory."""
        ...


@dataclass(frozen=True)
class Request:
    """What the user asks for."""

    spec: str
    scale: str
    seeds: int
    out: Path
    text: tuple[Path, ...] = ()
    benchmarks: str | None = None
    run_code: bool = False
    longer: int = 1
    execution: Execution = AS_RECIPES_SAY


def open_work(request: Request) -> tuple[Work, Places]:
    """Read and check the specification and the scale."""
    name, spec = read_spec(request.spec)
    scale = replace(read_scale(request.scale, request.longer), execution=request.execution)
    places = Places(request.out / scale.folder)
    work: Work
    if spec.kind == "conditional_entropy":
        work = EntropyStudy(name, places, Study())
    elif spec.kind == "harness":
        from multimdm.reproduce.benchmarks import Benchmarks  # needs lm-eval

        work = Benchmarks(name, spec, scale, request.seeds, places, request.text, request.benchmarks, request.run_code)
    else:
        work = Comparison(name, spec, scale, request.seeds, places, request.text)
    work.check()
    return work, places


def run_all(work_: Work, places: Places) -> Path:
    """All stages, together with other processes that do the same, and the results."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("several ranks work on one stage at a time: give --stage NAME (--list names the stages)")
    with own_gpu():
        work(work_.stages(), places.locks)
    return work_.write()


def run_stage(work_: Work, places: Places, name: str) -> None:
    """One stage, by one process or by all ranks of a launcher."""
    stages = {stage.name: stage for stage in work_.stages()}
    if name not in stages:
        raise ValueError(f"there is no stage '{name}'; there are: {', '.join(stages)}")
    missing = [need for need in stages[name].needs if not stages[need].done()]
    if missing:
        raise ValueError(f"the stage '{name}' needs others first: {', '.join(missing)}")
    with own_gpu():
        do_one(stages[name], places.locks)
