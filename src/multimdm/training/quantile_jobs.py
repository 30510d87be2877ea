"""The teacher of a run with quantile noise, found and checked before any work."""

import torch

from multimdm.evaluation.teachers import find_teacher
from multimdm.evaluation.teachers.base import order_of
from multimdm.process.checks import require
from multimdm.training.quantile_pairs import Quantiles
from multimdm.training.settings import QuantileSettings
from multimdm.training.sources import Source


def open_quantiles(settings: QuantileSettings, init: str, source: Source) -> Quantiles:
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
    return Quantiles(settings, teacher, order_of(teacher, settings.order))
