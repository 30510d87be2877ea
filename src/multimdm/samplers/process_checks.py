"""Which processes a method is for; others are refused by name."""

from multimdm._checks import require
from multimdm.process import MultiMask, Process
from multimdm.process.checks import kind_of


def masked_process(process: Process, who: str) -> MultiMask:
    """A process with masks, for methods that keep positions hidden."""
    if not isinstance(process, MultiMask):
        got = kind_of(process)
        raise ValueError(f"process must have masks for {who}; got {got}: use ancestral steps without a corrector")
    return process


def refuse_tied(process: Process, who: str) -> None:
    """Refuse a process that keeps x_1, for a method that forgets it."""
    require(
        not process.tied_noise,
        f"{who} is not for a model whose noise is tied to the text, which has to keep it: leave it out",
    )
