"""From settings to the step of the loop, checked against the process."""

from multimdm.process import Process
from multimdm.samplers.ancestral import Ancestral
from multimdm.samplers.choice import Choice
from multimdm.samplers.confidence import Confidence
from multimdm.samplers.left_to_right import LeftToRight
from multimdm.samplers.rewrite import Rewrite
from multimdm.samplers.settings import SURE_RUN, Order, Sampling

AnyStep = Ancestral | Confidence | LeftToRight | Rewrite
"""The steps that settings can ask for."""


def orders_of(process: Process) -> tuple[Order, ...]:
    """The orders that the process allows."""
    if not process.num_masks:
        return ("ancestral",)
    return ("ancestral", "confidence", "left_to_right", *(("rewrite",) if process.noise_shown else ()))


def choice_of(sampling: Sampling) -> Choice:
    """How a clean token is chosen."""
    temperature = 1.0 if sampling.temperature is None else sampling.temperature
    on = sampling.temperature_on
    return Choice(temperature, sampling.top_p, sampling.top_k, never=sampling.exclude_tokens, on=on)


def step_of(process: Process, sampling: Sampling) -> AnyStep:
    """The step that the settings ask for, whoever takes it; an error if the process does not allow it."""
    choice = choice_of(sampling)
    K = sampling.num_steps
    match sampling.order:
        case "confidence":
            late = sampling.postpone_tokens
            settings = sampling.block_length, sampling.threshold, sampling.remasking, sampling.guidance, late
            step = Confidence(K, choice, *settings)
        case "left_to_right":
            step = LeftToRight(K, choice, SURE_RUN if sampling.threshold is None else sampling.threshold)
        case "rewrite":
            step = Rewrite(K, choice)
        case _:
            step = Ancestral(sampling.times, choice, sampling.greedy_last, sampling.corrector)
    step.check(process)
    return step
