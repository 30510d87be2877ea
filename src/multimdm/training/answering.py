"""What it takes to train on prompts and answers."""

from dataclasses import replace

from multimdm._checks import require
from multimdm.objectives import Consistency, Distillation, Elbo, NextToken, Objective, Sdtt
from multimdm.pipeline import Model
from multimdm.process import MultiMask
from multimdm.samplers.advice import SamplingAdvice
from multimdm.training.sources import Source

_SUITED = (Elbo, NextToken, Consistency, Sdtt)
"""Objectives that leave prompts as they are and do not ask for them."""


def answering(model: Model, objective: Objective | Distillation, source: Source) -> Model:
    """The model as it will be, told how its prompts are written if the source has any."""
    if source.prompts is None:
        return model
    process = model.process
    require(
        isinstance(objective, _SUITED) and not (isinstance(process, MultiMask) and process.tied_noise),
        "data of --layout pairs are for masked, multi-mask and autoregressive models and for duo without its "
        f"relaxation; this job trains {type(objective).__name__} on {process!r}",
    )
    return replace(model, advice=replace(model.advice or SamplingAdvice(), prompts=source.prompts))
