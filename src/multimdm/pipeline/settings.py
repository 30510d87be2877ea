"""config.json of a checkpoint: one schema for what is stored."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import torch
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from multimdm._complaints import explain
from multimdm._files import read_json
from multimdm.models import DiTConfig
from multimdm.process import AnyProcess, Hybrid, MultiMask, Schedule, Uniform
from multimdm.process.settings import USUAL_RANKS, Readout
from multimdm.samplers.advice import SamplingAdvice

_STRICT = ConfigDict(extra="forbid")
FORMAT_VERSION = 1
MODEL_TYPE = "multimdm"
Settings = TypeVar("Settings")


@dataclass(frozen=True, config=_STRICT)
class ProcessSettings:
    """The process that a network was trained with. The assignment itself is among the tensors."""

    kind: Literal["multimask", "uniform", "hybrid"]
    vocab_size: int
    num_masks: int = 0
    rho: Annotated[float, Field(gt=0)] = 1.0
    alpha: Literal["linear", "cosine"] = "linear"
    ranks: tuple[float, float] | None = None
    """The expected ranks of a hybrid process at t = 0 and t = 1."""
    noise_dim: int | None = None
    """The number of Gaussians per position of a hybrid process."""
    tied_noise: bool = False
    """Whether the noise of masks is tied to the texts, so that samplers keep it."""
    noise_shown: bool = False
    """Whether the network is shown tied noise beside the state."""
    readout: Readout = "posterior"
    """Whether the network of a multimask process predicts posteriors, or from the context, so that own masks are read
    by Bayes' rule. Checkpoints that do not say predict posteriors."""

    def __post_init__(self) -> None:
        if self.tied_noise and self.kind != "multimask":
            raise ValueError(f"tied_noise is for kind multimask; the kind is {self.kind}")
        if self.readout == "context" and self.kind != "multimask":
            raise ValueError(f"readout context is for kind multimask; the kind is {self.kind}")


@dataclass(frozen=True, config=_STRICT)
class ForeignSettings:
    """Where an imported checkpoint came from."""

    kind: Literal["mdlm", "duo"]
    mask_id: int | None = None
    dtypes: dict[str, str] = Field(default_factory=dict)
    """Tensors that were not float32, for export."""


@dataclass(frozen=True, config=_STRICT)
class CheckpointSettings:
    """Everything about a checkpoint but its tensors."""

    network: DiTConfig
    process: ProcessSettings | None
    """None for an autoregressive network."""
    foreign: ForeignSettings | None = None
    lineage: tuple[dict[str, Any], ...] = ()
    """How it came to be, oldest first: each step with its settings."""
    advice: SamplingAdvice | None = None
    """How it wants to be sampled, unless told otherwise."""
    version: Literal[1] = FORMAT_VERSION
    model_type: Literal["multimdm"] = MODEL_TYPE
    """The name by which transformers knows whose a directory is (`multimdm.hf`); older checkpoints lack it."""


def describe_process(process: AnyProcess) -> ProcessSettings:
    """The settings that `build_process` needs."""
    schedule = process.schedule
    if isinstance(process, Hybrid):
        return ProcessSettings(
            kind="hybrid",
            vocab_size=process.vocab_size,
            num_masks=process.num_masks,
            alpha=schedule.kind,
            ranks=process.ranks,
            noise_dim=process.noise_dim,
        )
    sizes = process.vocab_size, process.num_masks
    if not isinstance(process, MultiMask):
        return ProcessSettings("uniform", *sizes, schedule.rho, schedule.kind)
    return ProcessSettings(
        "multimask",
        *sizes,
        schedule.rho,
        schedule.kind,
        tied_noise=process.tied_noise,
        noise_shown=process.noise_shown,
        readout=process.readout,
    )


def same_process(one: AnyProcess | None, other: AnyProcess | None) -> bool:
    """Whether two processes are equal, the assignment of tokens to masks included."""
    if one is None or other is None:
        return one is other
    if describe_process(one) != describe_process(other):
        return False
    return not (isinstance(one, MultiMask) and isinstance(other, MultiMask)) or torch.equal(
        one.assignment, other.assignment
    )


def build_process(settings: ProcessSettings, assignment: Any) -> AnyProcess:
    """The process of a checkpoint."""
    schedule = Schedule(settings.rho, settings.alpha)
    if settings.kind == "uniform":
        return Uniform(settings.vocab_size, schedule)
    if settings.kind == "hybrid":
        return Hybrid(settings.vocab_size, schedule, settings.ranks or USUAL_RANKS, settings.noise_dim)
    tied = settings.tied_noise, settings.noise_shown
    return MultiMask(settings.vocab_size, settings.num_masks, schedule, assignment, *tied, settings.readout)


def dump(settings: Any) -> dict[str, Any]:
    """Settings of this kind, and of others that a checkpoint holds, as plain data for JSON."""
    return TypeAdapter(type(settings)).dump_python(settings, mode="json")


def as_json(settings: CheckpointSettings) -> str:
    """The text of config.json."""
    return json.dumps(dump(settings), indent=2) + "\n"


def read_file(kind: type[Settings], path: Path) -> Settings:
    """The settings of this kind in a file."""
    return read_as(kind, read_json(path), str(path))


def read_as(kind: type[Settings], data: dict[str, Any], where: str) -> Settings:
    """Plain data as settings of this kind; errors name the field and where it was read."""
    try:
        return TypeAdapter(kind).validate_python(data)
    except ValidationError as error:
        raise ValueError(explain(error, where)) from None
