"""The mathematics: schedules, assignments, forward processes, their reversals, losses, couplings, exact draws."""

from multimdm.process.assignment import advise_masks, clustered, frequency_balanced, modulo, random_balanced
from multimdm.process.base import Process
from multimdm.process.checks import debug_checks
from multimdm.process.designated_entry import DesignatedEntry
from multimdm.process.draws import Generator, categorical, invert_cdf
from multimdm.process.gaussian import GaussianNoise, alpha_of_signal, signal_of_alpha
from multimdm.process.gumbel import GumbelNoise
from multimdm.process.mixture import Mixture
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
    "BetweenValues",
    "DesignatedEntry",
    "GaussianNoise",
    "Generator",
    "GumbelNoise",
    "LossTerms",
    "Mixture",
    "MultiMask",
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
    "frequency_balanced",
    "invert_cdf",
    "modulo",
    "random_balanced",
    "relaxed_state",
    "relaxed_times",
    "signal_of_alpha",
    "sufficient_top",
]
