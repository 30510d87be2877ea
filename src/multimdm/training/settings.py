"""The sections that recipes are made of (`schema.py`): data, network, process, training, log, LoRA, quantile noise."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs

from multimdm.models.config import SIZES
from multimdm.objectives.settings import (
    TimeSettings,
)
from multimdm.process.settings import USUAL_RANKS, OrderName, Readout

STRICT = ConfigDict(extra="forbid", strict=True)
Positive = Annotated[int, Field(gt=0)]
NonNegative = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
USUAL_MASK_SCALE = 0.1
"""How much new masks differ, as a multiple of the size of their rows' entries."""


@dataclass(frozen=True, config=STRICT)
class DataSettings:
    """What is trained on."""

    kind: Literal["tales", "prepared", "none"] = "tales"
    """tales: the built-in corpus, new stories without end. prepared: a directory that `multimdm prepare` wrote, which a
    path alone implies. none: no data, where a teacher writes all texts (couple with quantile.texts: teacher)."""
    path: str | None = None
    """The directory of prepared data. If it has the folders train and valid, they are used as such."""
    valid: str | None = None
    """Another directory of prepared data, to validate on."""
    learn_padding: bool | None = None
    """Predict the padding of prepared data like any token, so that the model learns how long texts are; figures per
    token then count it. Else padding is hidden, and nothing is learnt of lengths. Default: yes for --layout padded, no
    for packed sequences; what follows an answer (--layout pairs) is always learnt, as its end."""
    length: Positive = 48
    """Tokens per story of tales, padding included, at least 48; with kind none, tokens per text. Prepared data have
    their own length."""

    @model_validator(mode="before")
    @classmethod
    def _implied(cls, values: Any) -> Any:
        """A path is that of prepared data, whether or not the kind is named."""
        if isinstance(values, ArgsKwargs):
            named = dict(values.kwargs or {})
            return values if values.args else ArgsKwargs((), _with_kind(named))
        return _with_kind(values) if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _check(self) -> "DataSettings":
        if self.kind == "prepared" and self.path is None:
            raise ValueError("prepared data need a path: the directory that `multimdm prepare` wrote")
        if self.kind != "prepared" and (self.path is not None or self.valid is not None):
            raise ValueError(f"path and valid are for prepared data only; kind is {self.kind}")
        return self


def _with_kind(values: dict[str, Any]) -> dict[str, Any]:
    """The settings of data, with the kind that their path implies."""
    return values if "kind" in values or values.get("path") is None else {**values, "kind": "prepared"}


@dataclass(frozen=True, config=STRICT)
class NetworkSettings:
    """The size of the network, and what it sees."""

    architecture: Literal["dit", "llada"] = "dit"
    """MDLM's and DUO's diffusion transformer, or LLaDA's bidirectional LLaMA, which sees no time and has no dropout."""
    size: Literal["tiny", "mini", "base", "small"] = "small"
    """The size, from a laptop's (tiny, about 1 million parameters) to the paper's (small, 170 million)."""
    hidden_dim: Positive | None = None
    """Instead of the size's own width."""
    num_blocks: Positive | None = None
    """Instead of the size's own depth."""
    num_heads: Positive | None = None
    """Instead of the size's own number of attention heads."""
    cond_dim: Positive | None = None
    """Instead of the size's own width of the time embedding."""
    dropout: BelowOne = 0.1
    absolute_positions: bool | Literal["auto"] = False
    """Give every position a vector of its own, beside the rotary embedding: for texts that begin at position 0 (padded
    layouts, Tales), whose beginning a network could not find otherwise while everything is masked. auto: as the data
    are laid out, so not for packed ones."""
    embedding_std: PositiveFloat | None = None
    """Standard deviation of the embeddings at the start. Without it, that of MDLM's code, about 0.6 / sqrt(width):
    small networks then learn slowly, since the blocks soon drown which token was where."""
    embedding_norm: PositiveFloat | None = None
    """Scale every row of the token embedding to this length. Without it, 1 for candi, and for the others nothing."""
    copying_start: bool = False
    """Begin with attention that copies what it attends to, and a head that reads tokens off the embeddings: a small
    network then learns within minutes to repeat a word that stands elsewhere. Without it, MDLM's random weights."""
    conditioning: Literal["auto", "sigma", "time", "none"] = "auto"
    """What the network sees of t. auto: nothing for mdlm and ar, sigma = -log(1 - t) for the others."""

    @model_validator(mode="after")
    def _check(self) -> "NetworkSettings":
        if self.architecture == "llada":
            plain = (
                ("dropout", 0.0),
                ("absolute_positions", False),
                ("embedding_norm", None),
                ("copying_start", False),
            )
            for name, value in plain:
                if getattr(self, name) != value:
                    raise ValueError(f"{name} must be {value} for architecture llada; got {getattr(self, name)}")
            if self.conditioning not in ("auto", "none"):
                raise ValueError(f"conditioning must be none for architecture llada; got {self.conditioning!r}")
        return self

    @property
    def shape(self) -> dict[str, int]:
        """The sizes that a `DiTConfig` takes."""
        return {name: getattr(self, name) or value for name, value in SIZES[self.size].items()}


@dataclass(frozen=True, config=STRICT)
class ProcessChoice:
    """The noising process."""

    num_masks: Positive = 50
    """M, for multimdm; mdlm and candi have one mask and duo none."""
    rho: PositiveFloat = 1.0
    """beta_t = alpha_t ** rho: how long a hidden token stays at its designated mask."""
    alpha: Literal["linear", "cosine"] = "linear"
    ranks: tuple[PositiveFloat, PositiveFloat] = USUAL_RANKS
    """How far the noise of candi buries a hidden token at t = 0 and t = 1, as expected ranks among all tokens."""
    assignment: Literal["modulo", "random", "frequency", "clustered"] = "modulo"
    """Which mask is designated for a token. modulo: its id mod M. random: any, all masks with equally many tokens.
    frequency: one by which masks are equally frequent. clustered: tokens whose embeddings are similar in the checkpoint
    that is continued share a mask."""
    readout: Readout = "posterior"
    """What the network's prediction is taken for. posterior: what context and own mask tell together, as in the paper;
    the network has to learn to read both. context: what the context tells; the own mask is read by Bayes' rule, and the
    network learns to read those of other positions. With one mask, which tells nothing, both are the same."""


@dataclass(frozen=True, config=STRICT)
class TrainSettings:
    """How the network is trained."""

    steps: Positive = 200_000
    batch_size: Positive = 1024
    """Sequences per step, over all ranks and all parts of gradient accumulation."""
    times: TimeSettings = TimeSettings()
    """Which times diffusion is trained on; with quantile noise its shares say that."""
    micro_batch: Positive | None = None
    """Sequences that one rank works on at once. The rest is accumulated; without it, nothing is."""
    learning_rate: PositiveFloat = 3e-4
    betas: tuple[BelowOne, BelowOne] = (0.9, 0.999)
    weight_decay: NonNegativeFloat = 0.0
    warmup: NonNegative = 2500
    """Steps over which the learning rate grows from zero."""
    decay: Literal["constant", "cosine"] = "constant"
    """How the learning rate goes on after the warmup. constant: as it is. cosine: down to final_rate of it, by half a
    cosine."""
    final_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    clip: PositiveFloat | None = 1.0
    """The largest norm of the gradient; longer ones are scaled down."""
    ema: BelowOne = 0.9999
    """Decay of the moving average of the weights, which is what is validated, sampled and saved; 0 turns it off."""
    seed: NonNegative = 0
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: bfloat16 arithmetic on a GPU that has it, else float32. Weights are float32 always."""
    strategy: Literal["ddp", "fsdp"] = "ddp"
    """How several ranks share the work. ddp: every rank has all weights. fsdp: every rank has a share of them, and of
    the optimiser's state."""
    compile: bool = False
    """Compile the blocks of the network with torch.compile."""
    recompute: bool = False
    """Activation checkpointing: keep only the inputs of blocks for the backward pass. Less memory, more time."""
    anomaly_checks: bool = False
    """Check the contents of tensors in every step, to find where a number went wrong. Slow."""


@dataclass(frozen=True, config=STRICT)
class LogSettings:
    """What is written down, and how often. Nothing here changes what is learnt."""

    every: Positive = 50
    """Steps between lines of metrics."""
    validate_every: NonNegative = 5000
    """Steps between estimates of the NELBO on held-out sequences; 0 for the end only."""
    validation_sequences: Positive = 1024
    """How many held-out sequences are used, at most."""
    validation_draws: Positive = 1
    """Times that are drawn for each held-out sequence."""
    sample_every: NonNegative = 5000
    """Steps between generated texts; 0 for none."""
    samples: Positive = 4
    sample_steps: Positive = 16
    """Network calls per generated text."""
    checkpoint_every: Positive = 1000
    keep: Positive = 2
    """How many checkpoints are kept."""
    tensorboard: bool = True
    wandb: str | None = None
    """Name of a Weights & Biases project to log to as well."""
    trackio: str | None = None
    """Name of a trackio project to log to as well."""


@dataclass(frozen=True, config=STRICT)
class LoraSettings:
    """The adapter of a LLaDA network (App. C.5): LoRA on the projections of all blocks, and rows for the masks."""

    rank: Positive = 8
    alpha: PositiveFloat = 16.0
    """What LoRA adds is multiplied by alpha / rank."""
    dropout: BelowOne = 0.0
    """Dropout of LoRA's input."""
    rows: Literal["reserved", "appended"] = "reserved"
    """Where the masks lie: on rows of ids that no text has, or on new rows behind the embedding."""
    spare: tuple[NonNegative, ...] | None = None
    """The ids that no text has. Default: those of the published vocabulary, else those that the tokenizer lacks."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """The precision of the frozen weights in memory; auto is what the files have. What is trained is float32 always."""


@dataclass(frozen=True, config=STRICT)
class QuantileSettings:
    """Noise that holds the numbers by which an autoregressive teacher would draw the text (docs/quantile.md)."""

    teacher: str | None = None
    """Who draws: an autoregressive checkpoint of ours, a causal language model with the tokenizer of the texts (a
    directory, a Hub name, a .gguf file, smollm2), or tales, for the exact conditionals of that source. Without it, the
    checkpoint that is continued, which must then be autoregressive."""
    order: OrderName = "neighbours"
    """Which tokens have the small numbers: those of small id, the most probable ones, or the first on a line along
    which tokens change little. neighbours: by the laws of the tokens before and behind them in the training texts.
    similar: by the teacher's embeddings, which have to be good ones; no data are needed."""
    texts: Literal["data", "teacher"] = "data"
    """data: training texts, and the numbers that would draw them. teacher: numbers, and the texts that they draw, so
    that no data are needed; x_1 is then uniform exactly."""
    size: Positive = 512
    """How many texts the teacher writes at a time; must be a multiple of train.batch_size."""
    reuse: Positive = 4
    """How often a text of the teacher is trained on before new ones are written."""
