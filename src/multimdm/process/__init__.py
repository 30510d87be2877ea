"""The mathematics: schedules, assignments, forward processes, their reversals, losses, couplings, exact draws."""

from typing import TYPE_CHECKING

from multimdm.lazy import on_demand

if TYPE_CHECKING:
    from multimdm.process.assignment import advise_masks, clustered, frequency_balanced, modulo, random_balanced
    from multimdm.process.base import Path, Process
    from multimdm.process.checks import debug_checks
    from multimdm.process.draws import Generator, categorical, invert_cdf
    from multimdm.process.gaussian import GaussianNoise, alpha_of_signal, signal_of_alpha
    from multimdm.process.gumbel import GumbelNoise
    from multimdm.process.hybrid import AnyProcess, Hybrid, HybridState, expected_rank, sigma_of_rank
    from multimdm.process.mixture import Mixture, NoisyMixture
    from multimdm.process.multimask import MultiMask
    from multimdm.process.relaxation import RelaxedState, RelaxedTimes, relaxed_state, relaxed_times, sufficient_top
    from multimdm.process.schedule import BetweenValues, Schedule, ScheduleValues
    from multimdm.process.streams import Streams
    from multimdm.process.terms import LossTerms
    from multimdm.process.times import Time
    from multimdm.process.uniform import Uniform

__all__ = [
    "AnyProcess",
    "BetweenValues",
    "GaussianNoise",
    "Generator",
    "GumbelNoise",
    "Hybrid",
    "HybridState",
    "LossTerms",
    "Mixture",
    "MultiMask",
    "NoisyMixture",
    "Path",
    "Process",
    "RelaxedState",
    "RelaxedTimes",
    "Schedule",
    "ScheduleValues",
    "Streams",
    "Time",
    "Uniform",
    "advise_masks",
    "alpha_of_signal",
    "categorical",
    "clustered",
    "debug_checks",
    "expected_rank",
    "frequency_balanced",
    "invert_cdf",
    "modulo",
    "random_balanced",
    "relaxed_state",
    "relaxed_times",
    "sigma_of_rank",
    "signal_of_alpha",
    "sufficient_top",
]

__getattr__ = on_demand(
    __name__,
    {
        "AnyProcess": "hybrid",
        "BetweenValues": "schedule",
        "GaussianNoise": "gaussian",
        "Generator": "draws",
        "GumbelNoise": "gumbel",
        "Hybrid": "hybrid",
        "HybridState": "hybrid",
        "LossTerms": "terms",
        "Mixture": "mixture",
        "MultiMask": "multimask",
        "NoisyMixture": "mixture",
        "Path": "base",
        "Process": "base",
        "RelaxedState": "relaxation",
        "RelaxedTimes": "relaxation",
        "Schedule": "schedule",
        "ScheduleValues": "schedule",
        "Streams": "streams",
        "Time": "times",
        "Uniform": "uniform",
        "advise_masks": "assignment",
        "alpha_of_signal": "gaussian",
        "categorical": "draws",
        "clustered": "assignment",
        "debug_checks": "checks",
        "expected_rank": "hybrid",
        "frequency_balanced": "assignment",
        "invert_cdf": "draws",
        "modulo": "assignment",
        "random_balanced": "assignment",
        "relaxed_state": "relaxation",
        "relaxed_times": "relaxation",
        "sigma_of_rank": "hybrid",
        "signal_of_alpha": "gaussian",
        "sufficient_top": "relaxation",
    },
)
