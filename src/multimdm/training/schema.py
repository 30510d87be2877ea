"""The recipes of training, one kind for each command: one schema for recipe files, the command line and checkpoints."""

from typing import ClassVar, Literal

from pydantic import model_validator
from pydantic.dataclasses import dataclass

from multimdm.models.config import MaskRows
from multimdm.objectives.curricula import Ramp, Rounds
from multimdm.objectives.settings import (
    ConsistencySettings,
    ContextSettings,
    Relaxation,
    SdttSettings,
    Shares,
    TimeSettings,
)
from multimdm.samplers.advice import SamplingAdvice
from multimdm.training.settings import (
    STRICT,
    USUAL_MASK_SCALE,
    BelowOne,
    DataSettings,
    LogSettings,
    LoraSettings,
    NetworkSettings,
    NonNegativeFloat,
    PositiveFloat,
    ProcessChoice,
    QuantileSettings,
    TrainSettings,
)


@dataclass(frozen=True, config=STRICT, kw_only=True)
class TrainingRecipe:
    """What all training shares."""

    command: ClassVar[str]
    """Who takes such a recipe. In a file it is the key `command`, which may be left out."""
    data: DataSettings = DataSettings()
    train: TrainSettings = TrainSettings()
    log: LogSettings = LogSettings()


@dataclass(frozen=True, config=STRICT, kw_only=True)
class PretrainRecipe(TrainingRecipe):
    """A model from random weights."""

    command: ClassVar[str] = "pretrain"
    system: Literal["mdlm", "duo", "multimdm", "candi", "ar"]
    """Masked, uniform-state, multi-mask or hybrid diffusion, or an autoregressive model (a judge of texts)."""
    network: NetworkSettings = NetworkSettings()
    process: ProcessChoice = ProcessChoice()
    identification: Ramp = Ramp()
    relaxation: Relaxation | None = None
    """Duo's curriculum; without it, duo is trained on its NELBO from the start."""
    context: ContextSettings = ContextSettings()
    """Mistakes in what the network is shown; for mdlm and multimdm."""

    @model_validator(mode="after")
    def _check(self) -> "PretrainRecipe":
        if self.context.by != "none" and self.system not in ("mdlm", "multimdm"):
            raise ValueError(f"context is for masked systems, mdlm and multimdm; the system is {self.system}")
        if self.train.times != TimeSettings() and self.system == "ar":
            raise ValueError("train.times is for diffusion; the system is ar, which has no times")
        if self.relaxation is not None and self.system != "duo":
            raise ValueError(f"relaxation is duo's curriculum; the system is {self.system}")
        if self.network.architecture == "llada" and self.system not in ("mdlm", "multimdm"):
            raise ValueError(f"network.architecture llada is for masked systems; the system is {self.system}")
        return self


@dataclass(frozen=True, config=STRICT, kw_only=True)
class AdaptRecipe(TrainingRecipe):
    """A multi-mask model from a masked diffusion model (MultiMDM-cont), or one that is trained further as it is."""

    command: ClassVar[str] = "adapt"
    init: str
    """The checkpoint to start from: a directory or a name on the Hub, of a network with one mask, or with the masks
    (process.num_masks, assignment) that are asked for, which it keeps. An adapter of LLaDA is continued likewise."""
    backbone: Literal["dit", "llada"] = "dit"
    """dit: all weights are trained. llada: a LLaDA checkpoint in its published layout gets an adapter (lora)."""
    lora: LoraSettings = LoraSettings()
    """The adapter; for backbone llada."""
    process: ProcessChoice = ProcessChoice()
    identification: Ramp = Ramp()
    conditioning: Literal["sigma", "time", "none"] = "sigma"
    """What the network is to see of t from now on, if it saw nothing; it begins behind a gate at zero. None for llada,
    whose network has no place for it."""
    mask_rows: MaskRows = "copies"
    """What the rows of the new masks begin as. copies: of the old mask's, as in the paper; the network gives the
    predictions that it gave before. noise: copies with noise, so that they can be told apart. tokens: copies moved
    towards the embeddings of the tokens for which each is designated, so that they mean something at once."""
    mask_scale: PositiveFloat | None = None
    """How large what noise and tokens add is beside the entries of the mask's row; 0.1 unless given."""
    mask_fade: bool = False
    """Let what tells the rows of masks apart fade with beta_t: at time t a mask is its token's designated one with
    probability beta_t, and pure noise otherwise. Masks of init that fade already go on fading."""
    dropout: BelowOne | None = None
    """Instead of the dropout of the checkpoint."""
    context: ContextSettings = ContextSettings()
    """Mistakes in what the network is shown."""

    @model_validator(mode="after")
    def _check(self) -> "AdaptRecipe":
        if self.backbone == "llada":
            if self.conditioning != "none":
                raise ValueError(f"conditioning must be none for backbone llada; got {self.conditioning!r}")
            if self.dropout is not None:
                raise ValueError(f"dropout must be left out for backbone llada (see lora.dropout); got {self.dropout}")
            if self.mask_fade:
                raise ValueError("mask_fade must be left out for backbone llada, which does not see t")
        elif self.lora != LoraSettings():
            raise ValueError("lora is for backbone llada; the backbone is dit: leave it out")
        if self.mask_scale is not None and self.mask_rows == "copies":
            raise ValueError(f"mask_scale is for mask_rows noise or tokens; got {self.mask_scale} with copies")
        return self

    @property
    def row_scale(self) -> float:
        """The size of what is added to the rows of masks."""
        return USUAL_MASK_SCALE if self.mask_scale is None else self.mask_scale


@dataclass(frozen=True, config=STRICT, kw_only=True)
class CoupleRecipe(TrainingRecipe):
    """A model with quantile noise: every text has, as its x_1, the numbers by which a teacher would draw it."""

    command: ClassVar[str] = "couple"
    init: str
    """The checkpoint to start from: a directory or a name on the Hub. An autoregressive model of ours, which is its own
    teacher unless another is named, or a network with one mask or several."""
    process: ProcessChoice | None = None
    """The masks to make of an init with one mask. An init with several keeps its own, whose num_masks and assignment
    must then be named here; the schedule (rho, alpha) may be another."""
    quantile: QuantileSettings = QuantileSettings()
    """Whose numbers they are, and of which texts."""
    mask_codes: NonNegativeFloat = 1.0
    """Size of the rows that say where in [0, 1) the bucket of a mask lies, as a multiple of the size of tokens' rows;
    for an init without masks or with one. Without such rows (0) what the masks mean has to be learnt."""
    noise_shown: bool = True
    """Show the network x_1 beside x_t, at every position and time, by rows that begin at zero. Else, as for LLaDA, it
    sees x_t alone, and the noise of a position that is revealed is forgotten."""
    at_one: BelowOne = 0.25
    """Share of the batch at t = 1, where sampling begins. What at_one, surest and drafts leave is under random masks,
    at all times."""
    surest: BelowOne = 0.0
    """Share at states like those of a sampler by confidence: the positions that the network is surest of from noise
    alone are revealed. Costs another call of the network, without gradient."""
    drafts: BelowOne = 0.0
    """Share at whole drafts of its own, all of which is to be predicted again: for the order rewrite."""
    prompts: BelowOne = 0.0
    """Share of the sequences of every kind whose beginning is given like a prompt, without noise."""
    advice: SamplingAdvice | None = None
    """How the model wants to be sampled, unless told otherwise. Without it: by confidence at temperature 0, since all
    that is random is in the noise."""
    weight: Literal["elbo", "even"] = "elbo"
    """How positions under random masks are weighted. elbo: every position counts once, at the time of its reveal. even:
    all hidden positions count alike, at all times."""
    conditioning: Literal["sigma", "time", "none"] = "sigma"
    """What the network is to see of t from now on, if it saw nothing; it begins behind a gate at zero. none: LLaDA."""
    dropout: BelowOne | None = None
    """Instead of the dropout of the checkpoint."""

    @model_validator(mode="after")
    def _check(self) -> "CoupleRecipe":
        if self.train.times != TimeSettings():
            raise ValueError(
                "train.times must be left out where noise is tied to the text: at_one, surest, drafts and weight say "
                f"which times it is trained on; got density {self.train.times.density}"
            )
        if self.drafts and not self.noise_shown:
            raise ValueError("drafts needs noise_shown: true: a draft has no masks left that would tell of x_1")
        if self.data.kind == "none" and self.quantile.texts == "data":
            raise ValueError("data.kind none needs quantile.texts: teacher: someone must write the texts")
        if self.process is not None and self.process.readout == "context":
            raise ValueError(
                "process.readout must be posterior where noise is tied to the text; got context: leave it out"
            )
        _ = self.shares  # together they must not exceed 1
        if self.quantile.texts == "teacher" and self.quantile.size % self.train.batch_size:
            raise ValueError(  # a step's texts must belong to one set
                f"quantile.size must be a multiple of train.batch_size, {self.train.batch_size}; got "
                f"{self.quantile.size}"
            )
        return self

    @property
    def shares(self) -> Shares:
        """The shares of the batch."""
        return Shares(self.at_one, self.surest, self.drafts, self.prompts)


@dataclass(frozen=True, config=STRICT, kw_only=True)
class DistillRecipe(TrainingRecipe):
    """A few-step generator from a trained model of any process."""

    command: ClassVar[str] = "distill"
    init: str
    """The checkpoint that the student begins as: a directory or a name on the Hub. Its averaged weights are taken, if
    there are any."""
    teacher: str | None = None
    """The first teacher, a checkpoint of the same process and shape. Without it, the student's own."""
    consistency: ConsistencySettings | None = None
    """Consistency distillation: along shared-Gumbel paths, along DUO's Gaussian ones (DCD), and its controls."""
    sdtt: SdttSettings | None = None
    """Self-distillation through time."""
    dropout: BelowOne | None = None
    """Instead of the dropout of the checkpoint."""
    context: ContextSettings = ContextSettings()
    """Mistakes in the states that student and teacher are shown; for masks."""

    @model_validator(mode="after")
    def _check(self) -> "DistillRecipe":
        if (self.consistency is None) == (self.sdtt is None):
            raise ValueError("give one of the sections consistency and sdtt: they are two ways to distil")
        if self.train.steps % self.rounds.rounds:
            raise ValueError(
                f"train.steps must be a multiple of the number of rounds, {self.rounds.rounds}; got {self.train.steps}"
            )
        return self

    @property
    def rounds(self) -> Rounds:
        """The rounds of the section that was given."""
        settings = self.consistency or self.sdtt
        assert settings is not None
        return settings


RECIPES: dict[str, type[TrainingRecipe]] = {
    kind.command: kind for kind in (PretrainRecipe, AdaptRecipe, CoupleRecipe, DistillRecipe)
}
"""Command -> what it takes."""
