"""Masked positions that stay masked between two times."""

from jaxtyping import Float64, Int64
from torch import Tensor

from multimdm._checks import require
from multimdm.process import MultiMask, Process, Time
from multimdm.process.base import Ids
from multimdm.process.checks import kind_of
from multimdm.process.refresh import bridge_draw, bridge_weights
from multimdm.process.times import per_position


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
    at_s, at_t = (process.schedule(per_position(name, time, x_t)) for name, time in (("s", s), ("t", t)))
    between = process.schedule.between(per_position("s", s, x_t), per_position("t", t, x_t))
    target, current = (process.designated_mask(x) - process.vocab_size for x in (clean, x_t))
    weights = bridge_weights(target == current, at_s.masks, at_t.masks, between.masks, process.num_masks)
    return process.vocab_size + bridge_draw(u, weights, target, current, process.num_masks)
