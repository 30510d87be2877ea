"""Models with quantile noise: the teacher that their lineage names, and how probable they make a text in one step."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from multimdm._checks import require
from multimdm.evaluation.bootstrap import Bootstrap
from multimdm.evaluation.held_out import Part, over_parts
from multimdm.evaluation.nelbo import Nelbo, NelboSums
from multimdm.evaluation.one_step import OneStep
from multimdm.evaluation.progress import Progress, ignore
from multimdm.evaluation.real_text import RealText
from multimdm.evaluation.recall import Recall
from multimdm.evaluation.teachers import QuantileTeacher, find_teacher
from multimdm.evaluation.teachers.base import cells_of_text, order_of
from multimdm.pipeline import Model
from multimdm.pipeline.generation import length_of, tokenizer_of
from multimdm.process import MultiMask
from multimdm.process.quantile import Cells, Order

_TOGETHER = 64
"""Texts that go through the network at once."""


@dataclass(frozen=True)
class QuantileNoise:
    """How the noise of a model was tied to its texts."""

    teacher: QuantileTeacher
    order: Order


def has_quantile_noise(model: Model) -> bool:
    """Whether the lineage of the model says so."""
    return quantile_recipe(model) is not None


def open_quantile_noise(model: Model, length: int | None = None, teacher: str | None = None) -> QuantileNoise:
    """The teacher of the model's lineage, or the one that is named, which must be the same for figures to mean much."""
    recipe = quantile_recipe(model)
    if recipe is None:
        raise ValueError("a teacher is for models with quantile noise (multimdm couple with quantile); this is none")
    name = teacher or recipe["quantile"]["teacher"] or recipe["init"]
    device = next(model.network.parameters()).device
    try:
        found = find_teacher(name, tokenizer_of(model, "a teacher"), length_of(model, length), device)
    except ValueError as error:
        hint = "" if teacher is not None else "; if the teacher of this model is elsewhere, say where: --teacher"
        raise ValueError(f"{error}{hint}") from None
    if model.cell_order is not None:
        return QuantileNoise(found, model.cell_order)
    return QuantileNoise(found, order_of(found, recipe["quantile"]["order"]))


def quantile_recipe(model: Model) -> dict[str, Any] | None:
    """The recipe of the last stage in which texts were tied to their numbers."""
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
    process = _process(model)

    def of(part: Part) -> NelboSums:
        cells, streams = _cells(noise, part), part.streams(seed)
        sums = OneStep(model.network, process, part.ids, part.valid).bound(cells, streams, draws)
        progress(len(part.ids) * draws)
        return sums

    found = over_parts(model, text, sequences, draws, seed, _TOGETHER, of)
    return replace(NelboSums.of_parts(found).estimate(process), one_step=True)


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
    process = _process(model)

    def of(part: Part) -> tuple[Tensor, Tensor]:
        cells, streams = _cells(noise, part), part.streams(seed)
        log_probs = OneStep(model.network, process, part.ids, part.valid).log_prob(cells, streams, strings, temperature)
        progress(strings * len(part.ids) // sequences)
        return log_probs.cpu(), part.tokens.cpu()

    found = over_parts(model, text, sequences, 1, seed, _TOGETHER, of)
    log_probs, num_tokens = (torch.cat(each) for each in zip(*found, strict=True))
    nats = Bootstrap(len(num_tokens)).ratio(-log_probs, num_tokens)
    return Recall(float(temperature), nats, len(num_tokens), strings, proposed=True)


def _cells(noise: QuantileNoise, part: Part) -> Cells:
    """The cells of held-out texts under the teacher."""
    require(part.given is None, "quantile noise is measured on whole texts; these data are prompts and answers")
    valid = None if part.valid is None else part.valid.cpu()
    return cells_of_text(noise.teacher, part.ids.cpu(), valid, noise.order)


def _process(model: Model) -> MultiMask:
    assert isinstance(model.process, MultiMask)
    return model.process
