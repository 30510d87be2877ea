"""From settings to the step of the loop, checked against the process."""

from multimdm.process import Process
from multimdm.process.multimask import MultiMask
from multimdm.samplers.ancestral import Ancestral
from multimdm.samplers.clean import Choice
from multimdm.samplers.confidence import Confidence
from multimdm.samplers.left_to_right import LeftToRight
from multimdm.samplers.remain import masked_process
from multimdm.samplers.rewrite import Rewrite
from multimdm.samplers.settings import SURE_RUN, Order, Sampling
from multimdm.samplers.tied import refuse_tied, require_shown

AnyStep = Ancestral | Confidence | LeftToRight | Rewrite
"""The steps that settings can ask for."""


def orders_of(process: Process) -> tuple[Order, ...]:
    """The orders that the process allows."""
    if not isinstance(process, MultiMask):
        return ("ancestral",)
    return ("ancestral", "confidence", "left_to_right", *(("rewrite",) if process.noise_shown else ()))


def choice_of(sampling: Sampling) -> Choice:
    """How a clean token is chosen."""
    temperature = 1.0 if sampling.temperature is None else sampling.temperature
    on = sampling.temperature_on
    return Choice(temperature, sampling.top_p, sampling.top_k, never=sampling.exclude_tokens, on=on)


def step_of(process: Process, sampling: Sampling) -> AnyStep:
    """The step that the settings ask for; an error if the process does not allow it."""
    choice, K = choice_of(sampling), sampling.num_steps
    match sampling.order:
        case "confidence":
            masked_process(process, "order='confidence'")
            late = sampling.postpone_tokens
            settings = sampling.block_length, sampling.threshold, sampling.remasking, sampling.guidance, late
            return Confidence(K, choice, *settings)
        case "left_to_right":
            masked_process(process, "order='left_to_right'")
            return LeftToRight(K, choice, SURE_RUN if sampling.threshold is None else sampling.threshold)
        case "rewrite":
            require_shown(process, "order='rewrite'")
            return Rewrite(K, choice)
        case _:
            if sampling.corrector:
                masked_process(process, "corrector")
                refuse_tied(process, "corrector")
            return Ancestral(sampling.times, choice, sampling.greedy_last, sampling.corrector)
