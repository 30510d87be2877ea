"""The masks of a checkpoint that is continued with the ones it has."""

import torch

from multimdm._checks import require
from multimdm.pipeline import Model
from multimdm.process import MultiMask, Schedule
from multimdm.training.processes import multi_mask
from multimdm.training.settings import AdaptRecipe, ProcessChoice
from multimdm.training.sources import Source


def same_masks(choice: ProcessChoice, init: str, seed: int, start: Model, source: Source) -> MultiMask:
    """Those of init, with the schedule that is asked for: the paths are new. Other masks are refused."""
    process = start.process
    assert isinstance(process, MultiMask)
    same, made = choice.num_masks == process.num_masks, _assignment_by(start)
    if same and made is not None:
        same = choice.assignment == made
    elif same and choice.assignment != "clustered":  # what clusters were before training cannot be found again
        asked = multi_mask(choice, choice.num_masks, source, seed, process.vocab_size)
        same = torch.equal(asked.assignment, process.assignment)
    require(
        same,
        f"process must have the masks of init, or be left out; {init} has {process!r}, the recipe asks for "
        f"{choice.num_masks} masks, assignment {choice.assignment}",
    )
    schedule = Schedule(choice.rho, choice.alpha)
    return MultiMask(process.vocab_size, process.num_masks, schedule, process.assignment, readout=process.readout)


def check_continued(recipe: AdaptRecipe, process: MultiMask) -> None:
    """What an init that has its masks already leaves to be asked for."""
    require(
        recipe.process.readout == process.readout,
        f"process.readout must be that of init, which its predictions were learnt for: {recipe.init} has "
        f"{process.readout}, the recipe asks for {recipe.process.readout}",
    )
    require(
        recipe.mask_rows == "copies",
        f"mask_rows must be left out: {recipe.init} has its {process.num_masks} masks already; got {recipe.mask_rows}",
    )


def _assignment_by(model: Model) -> str | None:
    """How its masks were assigned, as far as its lineage tells."""
    choices = [step.get("recipe", {}).get("process") or {} for step in model.lineage]
    names = [choice["assignment"] for choice in choices if choice.get("num_masks", 1) > 1 and "assignment" in choice]
    return names[-1] if names else None
