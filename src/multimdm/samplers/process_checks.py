"""Which processes a method is for; others are refused by name."""

from multimdm._checks import require
from multimdm.process import MultiMask, Process
from multimdm.process.checks import kind_of


def masked_process(process: Process, who: str) -> MultiMask:
    """A process with masks, for methods that keep positions hidden."""
    require(
        isinstance(process, MultiMask),
        f"process must have masks for {who}; got {kind_of(process)}: use ancestral steps without a corrector",
    )
    assert isinstance(process, MultiMask)
    return process


def refuse_tied(process: Process, who: str) -> None:
    """Refuse a process that keeps x_1, for a method that forgets it."""
    require(
        not process.tied_noise,
        f"{who} is not for a model whose noise is tied to the text, which has to keep it: leave it out",
    )


def require_shown(process: Process, who: str) -> None:
    """Refuse a process that does not show x_1, for a method that leaves no trace of x_1 in the state."""
    require(
        process.noise_shown,
        f"{who} is for a model that is shown its noise beside the text (tied noise), since nothing else would tell it "
        f"which text is meant; got {process!r}: use another order",
    )
