from .assignment import advise_masks, clustered, frequency_balanced, modulo, random_balanced
from .base import Path, Process
from .checks import debug_checks
from .draws import Generator, Streams, categorical, invert_cdf
from .hybrid import AnyProcess, Hybrid, HybridState, sigma_of_rank
from .multimask import MultiMask
from .relaxation import RelaxedState, RelaxedTimes, relaxed_state, relaxed_times, sufficient_top
from .schedule import BetweenValues, Schedule, ScheduleValues, Time
from .shared_noise import GaussianNoise, GumbelNoise
from .uniform import Uniform
from .values import LossTerms, Mixture, NoisyMixture

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
    "categorical",
    "clustered",
    "debug_checks",
    "frequency_balanced",
    "invert_cdf",
    "modulo",
    "random_balanced",
    "relaxed_state",
    "relaxed_times",
    "sigma_of_rank",
    "sufficient_top",
]
