"""How much is trained on a text of one's own: the recipes text-ar and text-quantile, fitted to the data at hand."""

from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any, Literal

from multimdm.data.prepared import PreparedData
from multimdm.training.recipes import parse_recipe, read_yaml, set_key
from multimdm.training.schema import CoupleRecipe, PretrainRecipe, TrainingRecipe
from multimdm.training.settings import TrainSettings
from multimdm.training.shipped import find_recipe

Size = Literal["laptop", "gpu"]
USUAL_LENGTH: dict[Size, int] = {"laptop": 128, "gpu": 512}
"""Tokens of the sequences for which the batches of the recipes are meant; of longer ones there are fewer in a batch."""
TEACHER_EPOCHS, READER_EPOCHS = 30, 100
"""At most. A teacher that knows its texts by heart is sure of every token: its numbers then say nothing. The numbers
that a reader is shown are new in every epoch."""
FAST: dict[str, dict[str, Any]] = {
    "ar": {"network.size": "tiny", "train.steps": 350},
    "quantile": {"train.steps": 700},
}
"""What --fast changes in each recipe, beside what it changes in both."""
FAST_BOTH: dict[str, Any] = {
    "train.learning_rate": 2e-3,
    "train.warmup": 50,
    "train.ema": 0.99,
    "log.every": 25,
    "log.validation_sequences": 128,
    "log.checkpoint_every": 50,
}
_LOOKS = 4
"""Validations and samples in the course of a run."""


@dataclass(frozen=True)
class Request:
    """What is to be made, where."""

    data: Path
    """The directory of the prepared data."""
    out: Path
    size: Size = "laptop"
    fast: bool = False
    longer: float = 1.0
    seed: int = 0

    @property
    def teacher(self) -> Path:
        """The run of the teacher; `out` itself is that of the model."""
        return self.out / "teacher"


@dataclass(frozen=True)
class Budget:
    """Both recipes, and why one may be shorter than was asked for."""

    teacher: PretrainRecipe
    reader: CoupleRecipe
    cells_per_text: float
    """Of the texts that the reader meets, how many its teacher is asked about: each once, however often it comes."""
    notes: tuple[str, ...]


def budget(request: Request) -> Budget:
    """The budget for these data."""
    root = request.data
    training = PreparedData.open(root / "train" if (root / "train").is_dir() else root)
    sequences, length = len(training), training.manifest.length
    teacher = _fitted(_recipe("ar", PretrainRecipe, request), request, length)
    reader = _fitted(_recipe("quantile", CoupleRecipe, request), request, length)
    notes, fitted = [], []
    for name, recipe, most in (("teacher", teacher, TEACHER_EPOCHS), ("model", reader, READER_EPOCHS)):
        steps = max(1, round(recipe.train.steps * request.longer))
        there = ceil(most * sequences / recipe.train.batch_size)
        if there < steps:
            notes.append(
                f"{root} has {sequences:,} texts only, which the {name} would learn by heart: it is trained for "
                f"{there:,} steps, {most} epochs, instead of {steps:,}"
            )
        fitted.append(_of_steps(recipe, min(steps, there)))
    teacher, reader = fitted
    met = reader.train.steps * reader.train.batch_size
    return Budget(teacher, reader, min(1.0, sequences / met), tuple(notes))


def _recipe(name: str, kind: type, request: Request) -> Any:
    """The recipe that comes with the package, with its place and what --fast changes."""
    full = f"text-{name}" + ("-gpu" if request.size == "gpu" else "")
    data = read_yaml(find_recipe(full))
    changes = {"data.path": str(request.data), "train.seed": request.seed}
    if kind is CoupleRecipe:
        changes["init"] = str(request.teacher / "model")
    if request.fast:
        changes |= {**FAST_BOTH, **FAST[name]}
    for key, value in changes.items():
        set_key(data, key, value)
    return parse_recipe(data, kind, full)


def _fitted(recipe: Any, request: Request, length: int) -> Any:
    """The recipe with as many tokens in a batch, whatever the length of sequences."""
    train: TrainSettings = recipe.train
    usual = USUAL_LENGTH[request.size]
    micro = None if train.micro_batch is None else max(1, train.micro_batch * usual // length)
    batch = max(1, train.batch_size * usual // length)
    return replace(recipe, train=replace(train, batch_size=batch, micro_batch=micro))


def _of_steps(recipe: Any, steps: int) -> Any:
    """The recipe over so many steps, with what is measured by their number."""
    made: TrainingRecipe = recipe
    every = max(1, steps // _LOOKS)
    train = replace(made.train, steps=steps, warmup=min(made.train.warmup, steps // 10))
    return replace(made, train=train, log=replace(made.log, validate_every=every, sample_every=every))
