"""What a specification takes: data, training runs and measurements, in an order in which they can be done."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from multimdm._files import read_json
from multimdm.data.options import PrepareOptions
from multimdm.data.preparing import prepare
from multimdm.evaluation.store import write_json
from multimdm.pipeline.ranks import sharing, speaks
from multimdm.reproduce.measuring import Measuring
from multimdm.reproduce.places import Places
from multimdm.reproduce.recipes import recipe_of
from multimdm.reproduce.scale import Run, Scale
from multimdm.training.building import JOBS
from multimdm.training.loop import train
from multimdm.training.overall import Overall, StageWatcher
from multimdm.training.recipes import dump_recipe
from multimdm.training.resuming import HOW
from multimdm.training.schema import TrainingRecipe

FINISHED = "finished.json"
"""In the directory of a run: what it was and what came out."""
DATA = "data"
"""The stage that prepares the user's text."""


@dataclass(frozen=True)
class Stage:
    """A piece of work that one process does; what is done is not done again."""

    name: str
    """Unique at a scale; for --stage and for its lock."""
    needs: tuple[str, ...]
    cost: float
    """Beside a training step; for the estimate of the time left."""
    done: Callable[[], bool] = field(repr=False)
    run: Callable[[Overall], None] = field(repr=False)
    """It tells how far it is."""
    trains: bool = False
    """Whether it is a training run, whose launcher and GPUs are chosen for it alone."""
    runs_network: bool = True
    """Whether it wants a GPU."""


def training_name(run: str, seed: int) -> str:
    """The name of a training stage."""
    return f"{run}-seed{seed}"


def preparing_stage(scale: Scale, places: Places, text: Sequence[Path]) -> Stage:
    """The user's text, as the scale wants it."""
    settings = scale.settings.prepare
    assert settings is not None
    options = PrepareOptions(sources=tuple(str(path) for path in text), **vars(settings))

    def run(overall: Overall) -> None:
        overall.begin(DATA, "preparing the text")
        if not text:
            raise ValueError(
                f"the scale {scale.name} trains on your own text: give --text FILE, one text per line "
                f"({places.data} is not there yet)"
            )
        prepare(options, places.data)

    return Stage(DATA, (), 100.0, places.data.is_dir, run, runs_network=False)


def training_stage(run: Run, scale: Scale, seed: int, places: Places) -> Stage:
    """One training run; it resumes where it was stopped."""
    name, out = training_name(run.name, seed), places.run(run.name, seed)
    recipe = recipe_of(run, scale, seed, places)
    needs = [] if run.start is None else [training_name(run.start, seed)]
    if scale.settings.prepare is not None:
        needs.append(DATA)
    return recipe_stage(name, f"{run.command} {run.name}, seed {seed}", run.command, recipe, out, tuple(needs))


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
        start, before = time.monotonic(), _seconds(out)
        watcher = StageWatcher(overall, name, says, recipe.train.steps, aloud)
        try:
            outcome = train(JOBS[command](recipe, out.name), out, watcher=watcher)
        finally:
            spent = before + time.monotonic() - start
            if speaks() and out.is_dir():
                write_json(out / "seconds.json", {"seconds": spent})
        if speaks():
            nelbo = None if outcome.nelbo is None else outcome.nelbo.total
            write_json(out / FINISHED, {"recipe": _lasting(recipe), "seconds": round(spent, 1), "nelbo": nelbo})

    return Stage(name, needs, cost * recipe.train.steps, done, go, trains=True)


def measuring_stage(measuring: Measuring, places: Places) -> Stage:
    """All measurements of one model by all judges."""
    file = places.points / "done" / f"{measuring.name}.json"

    def done() -> bool:
        return file.exists() and read_json(file) == measuring.request

    def go(overall: Overall) -> None:
        overall.begin(measuring.name, measuring.says)
        with sharing() as ranks:
            measuring.run(places, overall.done)
        if ranks.is_main:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_json(file, measuring.request)

    needs = tuple(training_name(run, seed) for run, seed in measuring.models)
    return Stage(measuring.name, needs, measuring.cost, done, go)


def _finished_with(out: Path, recipe: TrainingRecipe) -> bool:
    """Whether a run came to its end; an error if it was another one."""
    file = out / FINISHED
    if not file.exists():
        return False
    before, now = _essential(read_json(file)["recipe"]), _lasting(recipe)
    if before == now:
        return True
    changed = next(key for key in sorted({*before, *now}) if before.get(key) != now.get(key))
    raise ValueError(
        f"{out} was trained with other settings: {changed} was {before.get(changed)!r} and is {now.get(changed)!r}; "
        "move it away, or give another --out"
    )


def _lasting(recipe: TrainingRecipe) -> dict[str, Any]:
    """What shapes the result, by key: neither where files lie, nor how the work is done, nor what is logged."""
    return _essential({key: value for key, value in _flat(dump_recipe(recipe)).items() if value is not None})


def _essential(flat: dict[str, Any]) -> dict[str, Any]:
    left_out = ("init", "data.path", *(f"train.{name}" for name in HOW))
    return {key: value for key, value in flat.items() if key not in left_out and not key.startswith("log.")}


def _flat(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in data.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def _seconds(out: Path) -> float:
    """Spent by attempts that were stopped."""
    file = out / "seconds.json"
    return read_json(file)["seconds"] if file.exists() else 0.0
