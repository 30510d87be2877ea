"""Masked positions that stay masked between two times."""

from jaxtyping import Float64, Int64
from torch import Tensor

from multimdm.process import MultiMask, Process, Time
from multimdm.process.base import Ids
from multimdm.process.checks import kind_of, require


def masked_process(process: Process, who: str) -> MultiMask:
    """A process with masks; others are refused by name."""
    require(
        isinstance(process, MultiMask),
        f"process must have masks for {who}; got {kind_of(process)}: use ancestral steps without a corrector",
    )
    assert isinstance(process, MultiMask)
    return process


def remain_masked(
    process: MultiMask, clean: Ids, x_t: Ids, s: Time, t: Time, u: Float64[Tensor, "*shape"]
) -> Int64[Tensor, "*shape"]:
    """x_s ~ p_{s|t}(. | x_t, clean, x_s masked): the mask factor of Eq. (two_time_backward_main), by one number each.

    The bridge leads from the current mask towards the one that the hypothesis designates. At visible positions the
    result means nothing.
    """
    return process.remain(clean, x_t, s, t, u)
