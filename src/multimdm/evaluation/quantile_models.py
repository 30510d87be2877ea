"""Models with quantile noise, whose lineage says by which teacher; and how probable they make a text in one step."""

from dataclasses import dataclass
from typing import Any

import torch

from multimdm.data.prepared import Example
from multimdm.evaluation.bootstrap import Bootstrap
from multimdm.evaluation.nelbo import Nelbo, NelboSums
from multimdm.evaluation.one_step import one_step_log_prob, one_step_sums
from multimdm.evaluation.progress import Progress, ignore
from multimdm.evaluation.real_text import RealText
from multimdm.evaluation.recall import Recall
from multimdm.evaluation.teachers import QuantileTeacher, find_teacher
from multimdm.evaluation.teachers.base import cells_of_text, order_of
from multimdm.pipeline import Model
from multimdm.pipeline.generation import length_of, tokenizer_of
from multimdm.process import MultiMask, Streams
from multimdm.process.quantile import Order

_TOGETHER = 64
"""Texts that go through the network at once."""


@dataclass(frozen=True)
class QuantileNoise:
    """How the noise of a model was tied to its texts."""

    teacher: QuantileTeacher
    order: Order


def has_quantile_noise(model: Model) -> bool:
    """Whether the lineage of the model says so."""
    return _recipe(model) is not None


def open_quantile_noise(model: Model, length: int | None = None, teacher: str | None = None) -> QuantileNoise:
    """The teacher of the model's lineage, or the one that is named, which must be the same for figures to mean much."""
    recipe = _recipe(model)
    if recipe is None:
        raise ValueError("a teacher is for models with quantile noise (multimdm couple with quantile); this is none")
    name = teacher or recipe["quantile"]["teacher"] or recipe["init"]
    device = next(model.network.parameters()).device
    try:
        found = find_teacher(name, tokenizer_of(model, "a teacher"), length_of(model, length), device)
    except ValueError as error:
        hint = "" if teacher is not None else "; if the teacher of this model is elsewhere, say where: --teacher"
        raise ValueError(f"{error}{hint}") from None
    return QuantileNoise(found, order_of(found, recipe["quantile"]["order"]))


def _recipe(model: Model) -> dict[str, Any] | None:
    """Of the last stage in which texts were tied to their numbers."""
    found = [step["recipe"] for step in model.lineage if (step.get("recipe") or {}).get("quantile")]
    return found[-1] if found else None


def one_step_bound(
    model: Model,
    noise: QuantileNoise,
    text: RealText,
    sequences: int,
    draws: int = 1,
    seed: int = 0,
    progress: Progress = ignore,
) -> Nelbo:
    """What -log p_1 of held-out text is at most, in nats per token, in two terms."""
    example, process, sums = text.take(sequences), _process(model), NelboSums.none()
    device = next(model.network.parameters()).device
    for first in range(0, len(example.ids), _TOGETHER):
        part = _part(example, first)
        ids, valid = part.on(device)
        cells = cells_of_text(noise.teacher, part.ids, part.valid, noise.order)
        streams = Streams.spawn(seed, len(ids), first)
        sums += one_step_sums(model.network.eval(), process, ids, valid, cells, streams, draws)
        progress(len(ids) * draws)
    result = sums.estimate(process)
    return Nelbo(
        result.reconstruction,
        result.identification,
        result.standard_error,
        result.sequences,
        result.tokens,
        one_step=True,
    )


def recall_by_importance(
    model: Model,
    noise: QuantileNoise,
    text: RealText,
    sequences: int,
    strings: int,
    temperature: float | int = 1.0,
    seed: int = 0,
    progress: Progress = ignore,
) -> Recall:
    """-log p_1 of held-out text, from noise that the teacher proposes for it."""
    example, process, found = text.take(sequences), _process(model), []
    device = next(model.network.parameters()).device
    for first in range(0, len(example.ids), _TOGETHER):
        part = _part(example, first)
        ids, valid = part.on(device)
        cells = cells_of_text(noise.teacher, part.ids, part.valid, noise.order)
        streams = Streams.spawn(seed, len(ids), first)
        network = model.network.eval()
        found.append(one_step_log_prob(network, process, ids, valid, cells, streams, strings, temperature).cpu())
        progress(strings * len(ids) // len(example.ids))
    nats = Bootstrap(len(example.ids)).ratio(-torch.cat(found), example.valid.sum(1))
    return Recall(float(temperature), nats, len(example.ids), strings, proposed=True)


def _process(model: Model) -> MultiMask:
    assert isinstance(model.process, MultiMask)
    return model.process


def _part(example: Example, first: int) -> Example:
    return Example(example.ids[first : first + _TOGETHER], example.valid[first : first + _TOGETHER])
