"""Steps of a process whose noise is tied to the text: x_1 is kept, and what it tells is used."""

from jaxtyping import Float64, Int64
from torch import Tensor

from multimdm.process import Mixture, MultiMask, Process, Time
from multimdm.process.checks import require
from multimdm.samplers.batch import Batch


def is_tied(process: Process) -> bool:
    """Whether the process has its noise tied to the text."""
    return process.tied_noise


def kept_end(process: Process, noise: Int64[Tensor, "B L"]) -> Int64[Tensor, "B L"] | None:
    """The noise that a sampler begins with, if it has to be kept."""
    return noise if is_tied(process) else None


def refuse_tied(process: Process, who: str) -> None:
    """Of methods that forget x_1."""
    require(
        not is_tied(process),
        f"{who} is not for a model whose noise is tied to the text, which has to keep it: leave it out",
    )


def require_shown(process: Process, who: str) -> None:
    """Of methods that leave no trace of x_1 in the state."""
    require(
        process.noise_shown,
        f"{who} is for a model that is shown its noise beside the text (tied noise), since nothing else would tell it "
        f"which text is meant; got {process!r}: use another order",
    )


def shown(process: Process, batch: Batch) -> Tensor | Mixture:
    """What the network is shown of the sequences; of given tokens and of padding no noise, for it is not known."""
    return process.path_to(batch.end).shown(batch.x, given=~batch.free)


def reverse_step(process: Process, clean: Tensor, batch: Batch, s: Time, t: Time) -> Int64[Tensor, "B L"]:
    """x_s given hypotheses of the clean tokens; with tied noise on the path that ends in x_1."""
    return process.path_to(batch.end).reverse_sample(clean, batch.x, s, t, batch.generator)


def stay_masked(
    process: MultiMask, clean: Tensor, batch: Batch, s: Time, t: Time, u: Float64[Tensor, "B L"]
) -> Int64[Tensor, "B L"]:
    """x_s of positions that stay masked, likewise."""
    return process.path_to(batch.end).remain(clean, batch.x, s, t, u)
