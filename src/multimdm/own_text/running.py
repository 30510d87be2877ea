"""The stages for a text of one's own, one after the other, and what came of them. What is done is not done again."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import multimdm
from multimdm.data.options import PrepareOptions
from multimdm.data.preparing import Progress, prepare
from multimdm.own_text.budget import Request, budget
from multimdm.pipeline.ranks import launched
from multimdm.reproduce.stages import Stage, recipe_stage
from multimdm.reproduce.workers import do_all, own_gpu
from multimdm.training.records import METRICS, read_records, validation_loss

TEACHER, MODEL = "teacher", "model"
"""The names of the stages."""
_TEACHER_COST, _READER_COST, _CELLS_COST = 1.0, 1.5, 0.7
"""The cost of a step; the reader is also asked which positions it is surest of. And that of asking the teacher for the
cells of as many texts as a step has."""
_BY_HEART = 0.05
"""Nats per token by which held-out text may get worse before a teacher is said to know its texts by heart."""
SHOWN_CALLS = (1, 2, 4)


@dataclass(frozen=True)
class Shown:
    """Texts of the finished model."""

    calls: int
    texts: tuple[str, ...]


def prepared(options: PrepareOptions, out: Path, watch: Callable[[Progress], None]) -> Path:
    """The data of text files, in the folder `data` of the run."""
    return prepare(options, out / "data", progress=watch).directory


def stages(request: Request) -> tuple[list[Stage], tuple[str, ...]]:
    """The stages in their order, and what the user should know of them."""
    made = budget(request)
    teacher = recipe_stage(
        TEACHER,
        "the teacher: an autoregressive model of the text",
        "pretrain",
        made.teacher,
        request.teacher,
        cost=_TEACHER_COST,
        aloud=True,
    )
    model = recipe_stage(
        MODEL,
        "the model: it learns to read the numbers by which its teacher would draw the text",
        "couple",
        made.reader,
        request.out,
        needs=(TEACHER,),
        cost=_READER_COST + _CELLS_COST * made.cells_per_text,
        aloud=True,
    )
    return [teacher, model], made.notes


def run(request: Request, say: Callable[[str], None]) -> None:
    """Everything that is not done yet."""
    if launched() > 1:
        raise ValueError(
            "train-text is one process; with several ranks, run its recipes one after the other: torchrun ... -m "
            "multimdm pretrain text-ar-gpu, then couple text-quantile-gpu"
        )
    found, notes = stages(request)
    for note in notes:
        say(note)
    with own_gpu():
        do_all(found, request.out / "locks")


def verdict(request: Request) -> list[str]:
    """What held-out text says of both models, in sentences."""
    lines = []
    if taught := _validations(request.teacher):
        last, best = taught[-1], min(taught, key=validation_loss)
        lines.append(
            f"The teacher gives held-out text a perplexity of {last['perplexity']:.4g} per token: the mark for "
            "what it teaches."
        )
        if validation_loss(last) > validation_loss(best) + _BY_HEART:
            lines.append(
                f"It learnt its texts by heart: after {best['step']:,} of {last['step']:,} steps the perplexity was "
                f"{best['perplexity']:.4g}. More text would help most; else train it for less long, by --longer."
            )
    if read := _validations(request.out):
        lines.append(
            f"Text in one call costs at most {validation_loss(read[-1]):.4g} nats per token (docs/quantile.md)."
        )
    return lines


def shown(request: Request, num: int = 2) -> list[Shown]:
    """A few texts of the model, by few calls."""
    model = multimdm.load(request.out / "model", "auto")
    return [Shown(K, tuple(model.sample(num=num, steps=K, seed=request.seed).texts)) for K in SHOWN_CALLS]


def _validations(run: Path) -> list[dict]:
    return read_records(run, "valid") if (run / METRICS).is_file() else []
