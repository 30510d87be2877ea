"""What a run of training is given: a model, its objective and texts, and the checks that they fit together."""

from dataclasses import dataclass, replace

import torch
from torch.nn import functional as F

from multimdm._checks import require
from multimdm.data.tokenizer import Tokenizer
from multimdm.models import Backbone, LLaDA
from multimdm.objectives import Consistency, Context, ContextSettings, Distillation, Elbo, NextToken, Objective, Sdtt
from multimdm.pipeline import Model
from multimdm.process import MultiMask, Uniform
from multimdm.samplers.advice import SamplingAdvice
from multimdm.training.quantile_pairs import Quantiles
from multimdm.training.schema import TrainingRecipe
from multimdm.training.sources import Source

_SUITED = (Elbo, NextToken, Consistency, Sdtt)
"""Objectives that leave prompts as they are and do not ask for them."""


@dataclass
class Job:
    """A model to train and all that it takes."""

    name: str
    command: str
    """What it is called in the lineage of the model: pretrain, adapt, couple, distill."""
    model: Model
    objective: Objective | Distillation
    source: Source
    recipe: TrainingRecipe
    teacher: Backbone | None = None
    """The first teacher, in a distillation."""
    quantiles: Quantiles | None = None
    """If the noise is to hold the numbers that draw the texts."""

    def __post_init__(self) -> None:
        self.model = _with_advice_on_prompts(self.model, self.objective, self.source)

    @property
    def fingerprint(self) -> str:
        """Equal for equal texts, and noise that is tied to them in the same way."""
        teacher = "" if self.quantiles is None else f", teacher {self.quantiles.teacher.fingerprint}"
        return f"{self.source.fingerprint}{teacher}"


def _with_advice_on_prompts(model: Model, objective: Objective | Distillation, source: Source) -> Model:
    """The model as it will be, told how its prompts are written if the source has any."""
    if source.prompts is None:
        return model
    process = model.process
    require(
        isinstance(objective, _SUITED) and not (process is not None and process.tied_noise),
        "data of --layout pairs are for masked, multi-mask and autoregressive models and for duo without its "
        f"relaxation; this job trains {type(objective).__name__} on {process!r}",
    )
    return replace(model, advice=replace(model.advice or SamplingAdvice(), prompts=source.prompts))


def context_of(settings: ContextSettings, source: Source, vocab_size: int) -> Context | None:
    """The mistakes that a recipe asks for in contexts, made of tokens of the data.

    These come first in the vocabulary of the process, which may have more.
    """
    if settings.by == "none":
        return None
    if settings.by == "own":
        return Context(settings)
    tokenizer = source.tokenizer
    if settings.by == "marginal":
        law = source.counts().double()
    else:
        law = torch.ones(tokenizer.vocab_size, dtype=torch.float64)
        if tokenizer.mask_id is not None:  # a mask inside the vocabulary (BERT's) is no token of any text
            law[tokenizer.mask_id] = 0.0
    return Context(settings, F.pad(law, (0, vocab_size - len(law))))


def check_fits(start: Model, init: str, source: Source) -> None:
    """A checkpoint and the data that it is to be trained on."""
    check_tokenizer(start.tokenizer, init, source)
    if isinstance(start.network, LLaDA):
        check_llada_fits(start, init, source)
        return
    config = start.network.config
    spare = config.vocab_size - source.tokenizer.vocab_size
    # DUO's published networks have one state more than GPT-2 has tokens, which no text has (pipeline/exchange.py).
    require(
        spare == 0 or (spare == 1 and isinstance(start.process, Uniform)),
        f"init and data must have the same vocabulary; {init} has {config.vocab_size} tokens, the data "
        f"{source.tokenizer.vocab_size}",
    )
    check_length(config.max_length, init, source)


def check_tokenizer(tokenizer: Tokenizer | None, init: str, source: Source) -> None:
    """Equal ids must mean equal tokens; a checkpoint without a tokenizer takes any."""
    require(
        tokenizer is None or tokenizer.fingerprint == source.tokenizer.fingerprint,
        f"init and data must have the same tokenizer; {init} has {tokenizer!r}, the data "
        f"{source.tokenizer!r}: prepare the data with the tokenizer of the checkpoint",
    )


def check_length(max_length: int, init: str, source: Source) -> None:
    """The network must be made for sequences as long as those of the data."""
    require(
        max_length >= source.length,
        f"the data have sequences of {source.length} tokens; {init} is made for {max_length} at most",
    )


def check_llada_fits(start: Model, init: str, source: Source) -> None:
    """A checkpoint of any number of masks and the data that it is to be trained on."""
    assert isinstance(start.process, MultiMask)
    config = start.network.config
    require(
        source.tokenizer.vocab_size <= config.vocab_size and source.length <= config.max_length,
        f"{init} has {config.vocab_size} tokens and {config.max_length} positions; the data have "
        f"{source.tokenizer.vocab_size} and {source.length}",
    )
