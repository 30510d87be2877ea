"""What a specification takes: data, training runs and measurements, in an order in which they can be done."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from multimdm._files import read_json
from multimdm.data.options import PrepareOptions
from multimdm.data.preparing import prepare
from multimdm.evaluation.store import write_json
from multimdm.pipeline.ranks import sharing, speaks
from multimdm.reproduce.measuring import Measuring
from multimdm.reproduce.models import Folders, recipe_of, shaping_settings, without_circumstances
from multimdm.reproduce.scale import Run, Scale
from multimdm.training.building import JOBS
from multimdm.training.loop import train
from multimdm.training.overall import Overall, StageWatcher
from multimdm.training.schema import TrainingRecipe

FINISHED = "finished.json"
"""The file in the directory of a run that says what it was and what came out."""
_CLOCK = "seconds.json"
"""The file beside it that says what all attempts together took."""
DATA = "data"
"""The stage that prepares the user's text."""


@dataclass(frozen=True)
class Stage:
    """A piece of work that one process does; what is done is not done again."""

    name: str
    """Unique at a scale; for --stage and for its lock."""
    needs: tuple[str, ...]
    cost: float
    """What it costs in training steps, for the estimate of the time left."""
    done: Callable[[], bool] = field(repr=False)
    run: Callable[[Overall], None] = field(repr=False)
    """Does the work, and tells how far it is."""
    trains: bool = False
    """Whether it is a training run, whose launcher and GPUs are chosen for it alone."""
    runs_network: bool = True
    """Whether it wants a GPU."""


def training_name(run: str, seed: int) -> str:
    """The name of a training stage."""
    return f"{run}-seed{seed}"


def preparing_stage(scale: Scale, folders: Folders, text: Sequence[Path]) -> Stage:
    """The user's text, as the scale wants it."""
    settings = scale.settings.prepare
    assert settings is not None
    options = PrepareOptions(sources=tuple(str(path) for path in text), **vars(settings))

    def run(overall: Overall) -> None:
        overall.begin(DATA, "preparing the text")
        if not text:
            raise ValueError(
                f"the scale {scale.name} trains on your own text: give --text FILE, one text per line "
                f"({folders.data} is not there yet)"
            )
        prepare(options, folders.data)

    return Stage(DATA, (), 100.0, folders.data.is_dir, run, runs_network=False)


def training_stage(run: Run, scale: Scale, seed: int, folders: Folders) -> Stage:
    """One training run; it resumes where it was stopped."""
    name, out = training_name(run.name, seed), folders.run(run.name, seed)
    recipe = recipe_of(run, scale, seed, folders)
    needs = [] if run.start is None else [training_name(run.start, seed)]
    if scale.settings.prepare is not None:
        needs.append(DATA)
    says = run.says or f"{run.command} {run.name}, seed {seed}"
    return recipe_stage(name, says, run.command, recipe, out, tuple(needs), run.cost)


def recipe_stage(
    name: str,
    says: str,
    command: str,
    recipe: TrainingRecipe,
    out: Path,
    needs: tuple[str, ...] = (),
    cost: float = 1.0,
    aloud: bool = False,
) -> Stage:
    """A run of a recipe, named after its directory. A step costs so much beside those of other stages; with `aloud`,
    what training says is told."""

    def done() -> bool:
        return _finished_with(out, recipe)

    def go(overall: Overall) -> None:
        watcher = StageWatcher(overall, name, says, recipe.train.steps, aloud)
        with _clocked(out / _CLOCK):
            outcome = train(JOBS[command](recipe, out.name), out, watcher=watcher)
        if speaks():
            nelbo = None if outcome.nelbo is None else outcome.nelbo.total
            seconds = round(_seconds(out / _CLOCK), 1)
            write_json(out / FINISHED, {"recipe": shaping_settings(recipe), "seconds": seconds, "nelbo": nelbo})

    return Stage(name, needs, cost * recipe.train.steps, done, go, trains=True)


def training_seconds(folders: Folders, run: str, seed: int) -> float:
    """What a finished run took."""
    return read_json(folders.run(run, seed) / FINISHED)["seconds"]


def measuring_stage(measuring: Measuring, folders: Folders) -> Stage:
    """All measurements of one model by all judges."""
    file = folders.points / "done" / f"{measuring.name}.json"

    def done() -> bool:
        return file.exists() and read_json(file) == measuring.request

    def go(overall: Overall) -> None:
        overall.begin(measuring.name, measuring.says)
        clock = _measuring_clock(measuring, folders)
        clock.parent.mkdir(parents=True, exist_ok=True)
        with sharing() as ranks, _clocked(clock):
            measuring.run(folders, overall.done)
        if ranks.is_main:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_json(file, measuring.request)

    needs = tuple(training_name(run, seed) for run, seed in measuring.models)
    return Stage(measuring.name, needs, measuring.cost, done, go)


def measuring_seconds(measuring: Measuring, folders: Folders) -> float:
    """What the measurements of a model took."""
    return _seconds(_measuring_clock(measuring, folders))


def _measuring_clock(measuring: Measuring, folders: Folders) -> Path:
    return folders.points / "seconds" / f"{measuring.name}.json"


@contextmanager
def _clocked(file: Path) -> Iterator[None]:
    """Add the seconds that something takes to those of earlier attempts, also if it is interrupted."""
    start = time.monotonic()
    try:
        yield
    finally:
        if speaks() and file.parent.is_dir():
            write_json(file, {"seconds": _seconds(file) + time.monotonic() - start})


def _seconds(file: Path) -> float:
    """Seconds that were spent so far."""
    return read_json(file)["seconds"] if file.exists() else 0.0


def _finished_with(out: Path, recipe: TrainingRecipe) -> bool:
    """Whether a run came to its end; an error if it was another one."""
    file = out / FINISHED
    if not file.exists():
        return False
    before, now = without_circumstances(read_json(file)["recipe"]), shaping_settings(recipe)
    if before == now:
        return True
    changed = next(key for key in sorted({*before, *now}) if before.get(key) != now.get(key))
    raise ValueError(
        f"{out} was trained with other settings: {changed} was {before.get(changed)!r} and is {now.get(changed)!r}; "
        "move it away, or give another --out"
    )
