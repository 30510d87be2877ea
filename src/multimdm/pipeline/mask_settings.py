"""masks.json: what a published layout has no place for, the masks of a network and its process."""

from typing import Annotated, Any, Literal

import torch
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from multimdm.models.llada_config import Adapter
from multimdm.process import MultiMask, Schedule, modulo
from multimdm.process.settings import Readout
from multimdm.samplers.advice import SamplingAdvice

MASKS = "masks.json"


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class MaskSettings:
    """Beside a LLaDA network or an adapter of one."""

    vocab_size: int
    mask_ids: tuple[int, ...]
    """Rows of the input embedding, one for each of the M masks."""
    rho: Annotated[float, Field(gt=0)] = 1.0
    alpha: Literal["linear", "cosine"] = "linear"
    assignment: Literal["modulo"] | tuple[int, ...] = "modulo"
    """The mask of each token: id mod M, or a list of V numbers."""
    tied_noise: bool = False
    """Whether the noise is tied to the texts, so that samplers keep it."""
    readout: Readout = "posterior"
    """Whether the network predicts posteriors, or from the context, and own masks are read by Bayes' rule."""
    adapter: Adapter | None = None
    """What an adapter is; None for a whole network."""
    lineage: tuple[dict[str, Any], ...] = ()
    """How it came to be, oldest first: each step with its settings."""
    advice: SamplingAdvice | None = None
    """How it wants to be sampled, unless told otherwise."""
    version: Literal[1] = 1

    def process(self) -> MultiMask:
        """The process that it was trained with."""
        V, M = self.vocab_size, len(self.mask_ids)
        assignment = modulo(V, M) if self.assignment == "modulo" else torch.tensor(self.assignment)
        return MultiMask(V, M, Schedule(self.rho, self.alpha), assignment, self.tied_noise, readout=self.readout)


def describe_masks(
    process: MultiMask,
    mask_rows: tuple[int, ...],
    adapter: Adapter | None,
    lineage: tuple[dict[str, Any], ...],
    advice: SamplingAdvice | None = None,
) -> MaskSettings:
    """The settings that give back this process."""
    usual = torch.equal(process.assignment.cpu(), modulo(process.vocab_size, process.num_masks))
    return MaskSettings(
        vocab_size=process.vocab_size,
        mask_ids=mask_rows,
        rho=process.schedule.rho,
        alpha=process.schedule.kind,
        assignment="modulo" if usual else tuple(process.assignment.tolist()),
        tied_noise=process.tied_noise,
        readout=process.readout,
        adapter=adapter,
        lineage=lineage,
        advice=advice,
    )
