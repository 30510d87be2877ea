"""The teacher of a run with quantile noise, found and checked before any work."""

import torch

from multimdm._checks import require
from multimdm.evaluation.quantile_models import quantile_recipe
from multimdm.evaluation.teachers import QuantileTeacher, find_teacher
from multimdm.evaluation.teachers.base import order_of
from multimdm.pipeline import Model
from multimdm.process.quantile import Order
from multimdm.training.quantile_pairs import Quantiles
from multimdm.training.settings import QuantileSettings
from multimdm.training.sources import NoData, Source

_TEXTS = 20_000
"""Training texts in which the neighbours of tokens are counted."""


def open_quantiles(settings: QuantileSettings, init: str, start: Model, source: Source) -> Quantiles:
    """The teacher that the settings name or, without a name, the checkpoint that is continued."""
    name = init if settings.teacher is None else settings.teacher
    try:
        teacher = find_teacher(name, source.tokenizer, source.length, torch.device("cpu"), source.begins_with)
    except ValueError as error:
        hint = "" if settings.teacher is not None else "; or name one: quantile.teacher (--quantile.teacher)"
        raise ValueError(f"{error}{hint}") from None
    require(
        settings.texts == "data" or not source.hides_lengths,
        "quantile.texts: teacher needs a model that learns where texts end: leave out data.learn_padding: false",
    )
    return Quantiles(settings, teacher, _order(settings, teacher, start, source))


def _order(settings: QuantileSettings, teacher: QuantileTeacher, start: Model, source: Source) -> Order:
    """Of the vocabulary: that of the checkpoint, if it has learnt to read it, else a new one."""
    earlier = quantile_recipe(start)
    if start.cell_order is not None and earlier is not None and earlier["quantile"]["order"] == settings.order:
        return start.cell_order
    texts = None if isinstance(source, NoData) else lambda: source.train(0, _TEXTS).ids
    return order_of(teacher, settings.order, texts)
