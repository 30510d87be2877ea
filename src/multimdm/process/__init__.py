"""The mathematics: schedules, assignments, forward processes, their reversals, losses, couplings, exact draws."""

from multimdm.process.assignment import advise_masks, clustered, frequency_balanced, modulo, random_balanced
from multimdm.process.base import Process
from multimdm.process.checks import debug_checks
from multimdm.process.designated_entry import DesignatedEntry
from multimdm.process.draws import Generator, categorical, invert_cdf
from multimdm.process.expected_rank import expected_rank, sigma_of_rank
from multimdm.process.gaussian import GaussianNoise, alpha_of_signal, signal_of_alpha
from multimdm.process.gumbel import GumbelNoise
from multimdm.process.hybrid import AnyProcess, Hybrid, HybridState
from multimdm.process.mixture import Mixture, NoisyMixture
from multimdm.process.multimask import MultiMask
from multimdm.process.relaxation import (
    RelaxedState,
    RelaxedTimes,
    relaxed_state,
    relaxed_times,
    sufficient_top,
)
from multimdm.process.schedule import BetweenValues, Schedule, ScheduleValues
from multimdm.process.streams import Streams
from multimdm.process.terms import LossTerms
from multimdm.process.times import Time
from multimdm.process.uniform import Uniform

__all__ = [
    "AnyProcess",
    "BetweenValues",
    "DesignatedEntry",
    "GaussianNoise",
    "Generator",
    "GumbelNoise",
    "Hybrid",
    "HybridState",
    "LossTerms",
    "Mixture",
    "MultiMask",
    "NoisyMixture",
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
