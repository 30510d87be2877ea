"""The process that a recipe asks for: a new one, or with the masks of a checkpoint that is continued."""

from collections.abc import Callable

import torch
from torch import Tensor

from multimdm._checks import require
from multimdm.pipeline import Model
from multimdm.process import (
    AnyProcess,
    Hybrid,
    MultiMask,
    Schedule,
    Uniform,
    clustered,
    frequency_balanced,
    modulo,
    random_balanced,
)
from multimdm.process.assignment import own_masks
from multimdm.training.schema import AdaptRecipe, PretrainRecipe
from multimdm.training.settings import ProcessChoice
from multimdm.training.sources import Source
from multimdm.training.step_plan import derive


def process_of(recipe: PretrainRecipe, vocab_size: int, masks: Callable[[int], MultiMask]) -> AnyProcess | None:
    """The process of a system; `masks` makes that of so many masks."""
    if recipe.system == "ar":
        return None
    if recipe.system == "duo":
        return Uniform(vocab_size, Schedule(recipe.process.rho, recipe.process.alpha))
    if recipe.system == "candi":
        # CANDI's, with as few Gaussians per position as a network of this width takes.
        width = recipe.network.shape["hidden_dim"]
        schedule = Schedule(kind=recipe.process.alpha)
        return Hybrid(vocab_size, schedule, recipe.process.ranks, min(vocab_size, width))
    return masks(recipe.process.num_masks if recipe.system == "multimdm" else 1)


def multi_mask(
    choice: ProcessChoice,
    num_masks: int,
    source: Source,
    seed: int,
    vocab_size: int | None = None,
    embeddings: Tensor | None = None,
    tied_noise: bool = False,
) -> MultiMask:
    """Over the tokens of the data, or a larger vocabulary that has them first; embeddings are of a trained model.

    With tied noise there may be more masks than tokens; then every token has one of its own, whatever is asked for.
    """
    V = source.tokenizer.vocab_size if vocab_size is None else vocab_size
    alone = tied_noise and num_masks > V
    assignment = own_masks(V) if alone else _assignment(choice, num_masks, source, seed, V, embeddings)
    return MultiMask(V, num_masks, Schedule(choice.rho, choice.alpha), assignment, tied_noise, readout=choice.readout)


def _assignment(
    choice: ProcessChoice, num_masks: int, source: Source, seed: int, V: int, embeddings: Tensor | None
) -> Tensor:
    if choice.assignment == "clustered":
        require(
            embeddings is not None,
            "process.assignment clustered groups tokens by the embeddings of a trained model: continue one (adapt, "
            "couple), or take another assignment",
        )
        assert embeddings is not None
        return clustered(embeddings[:V], num_masks, derive(seed, "assignment"))
    if choice.assignment == "random":
        return random_balanced(V, num_masks, derive(seed, "assignment"))
    if choice.assignment == "frequency":
        counts = source.counts().double()
        return frequency_balanced(torch.nn.functional.pad(counts, (0, V - len(counts))), num_masks)
    return modulo(V, num_masks)


def same_masks(choice: ProcessChoice, init: str, seed: int, start: Model, source: Source) -> MultiMask:
    """The masks of init, with the schedule that is asked for: the paths are new. Other masks are refused."""
    process = start.process
    assert isinstance(process, MultiMask)
    same, made = choice.num_masks == process.num_masks, _assignment_by(start)
    if same and made is not None:
        same = choice.assignment == made
    elif same and choice.assignment != "clustered":  # what clusters were before training cannot be found again
        asked = multi_mask(choice, choice.num_masks, source, seed, process.vocab_size, tied_noise=process.tied_noise)
        same = torch.equal(asked.assignment, process.assignment)
    require(
        same,
        f"process must have the masks of init, or be left out; {init} has {process!r}, the recipe asks for "
        f"{choice.num_masks} masks, assignment {choice.assignment}",
    )
    schedule = Schedule(choice.rho, choice.alpha)
    kept = process.assignment, process.tied_noise
    return MultiMask(process.vocab_size, process.num_masks, schedule, *kept, readout=process.readout)


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
