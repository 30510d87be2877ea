"""An experiment is found by the names of its specification and scale, and run."""

from dataclasses import dataclass, replace
from pathlib import Path

from multimdm.evaluation.conditional_entropy import Study
from multimdm.pipeline.ranks import launched
from multimdm.report.quickstart_report import Story
from multimdm.reproduce.comparison import Comparison
from multimdm.reproduce.entropy_study import EntropyStudy
from multimdm.reproduce.experiment import Experiment
from multimdm.reproduce.models import Folders
from multimdm.reproduce.quickstart import Quickstart
from multimdm.reproduce.scale import AS_RECIPES_SAY, Execution, read_scale
from multimdm.reproduce.spec import read_spec
from multimdm.reproduce.workers import do_all, do_one, own_gpu


@dataclass(frozen=True)
class Request:
    """What the user asks for."""

    spec: str
    scale: str
    seeds: int
    """How many, from the first on."""
    out: Path
    text: tuple[Path, ...] = ()
    benchmarks: str | None = None
    run_code: bool = False
    longer: int = 1
    execution: Execution = AS_RECIPES_SAY
    first_seed: int = 0
    flat: bool = False
    """Keep everything in `out` itself, without folders for scales, seeds and specifications."""


def open_experiment(request: Request) -> Experiment:
    """Read and check the specification and the scale."""
    name, spec = read_spec(request.spec)
    scale = replace(read_scale(request.scale, request.longer), execution=request.execution)
    folders = Folders(request.out if request.flat else request.out / scale.folder, request.flat)
    seeds = tuple(range(request.first_seed, request.first_seed + request.seeds))
    experiment: Experiment
    if spec.kind == "conditional_entropy":
        experiment = EntropyStudy(name, folders, Study())
    elif spec.kind == "harness":
        from multimdm.reproduce.benchmarks import Benchmarks  # needs lm-eval

        experiment = Benchmarks(name, spec, scale, seeds, folders, request.text, request.benchmarks, request.run_code)
    elif spec.kind == "quickstart":
        experiment = Quickstart(name, spec, scale, seeds, folders, request.text)
    else:
        experiment = Comparison(name, spec, scale, seeds, folders, request.text)
    experiment.check()
    return experiment


def run_all(experiment: Experiment) -> Path:
    """All stages, together with other processes that do the same, and the results."""
    if launched() > 1:
        raise ValueError("several ranks work on one stage at a time: give --stage NAME (--list names the stages)")
    if isinstance(experiment, Comparison):
        experiment.check_judges()
    with own_gpu():
        do_all(experiment.stages(), experiment.folders.locks)
    return experiment.write()


def run_quickstart(scale: str, out: Path, seed: int) -> Story:
    """Everything in one directory, from wherever an earlier run was stopped."""
    if launched() > 1:
        raise ValueError("the quickstart is one process: start it without torchrun")
    experiment = open_experiment(Request("quickstart", scale, 1, out, first_seed=seed, flat=True))
    assert isinstance(experiment, Quickstart)
    run_all(experiment)
    return experiment.story


def run_stage(experiment: Experiment, name: str) -> None:
    """One stage, by one process or by all ranks of a launcher."""
    stages = {stage.name: stage for stage in experiment.stages()}
    if name not in stages:
        raise ValueError(f"there is no stage '{name}'; there are: {', '.join(stages)}")
    missing = [need for need in stages[name].needs if not stages[need].done()]
    if missing:
        raise ValueError(f"the stage '{name}' needs others first: {', '.join(missing)}")
    with own_gpu():
        do_one(stages[name], experiment.folders.locks)
