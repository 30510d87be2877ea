"""Samplers: one loop, and the steps that it takes. They know processes and any callable network, no network class."""

from typing import TYPE_CHECKING

from multimdm.lazy import on_demand

if TYPE_CHECKING:
    from multimdm.samplers.advice import SamplingAdvice, resolve
    from multimdm.samplers.ancestral import Ancestral
    from multimdm.samplers.autoregressive import generate_autoregressive
    from multimdm.samplers.batch import Batch
    from multimdm.samplers.candi import generate_candi
    from multimdm.samplers.choice import Choice
    from multimdm.samplers.confidence import Confidence
    from multimdm.samplers.corrector import most_remasked, remask_sample
    from multimdm.samplers.grid import time_grid
    from multimdm.samplers.left_to_right import LeftToRight
    from multimdm.samplers.loop import Generated, Moved, Step, generate
    from multimdm.samplers.question import Hypotheses, Question, ask
    from multimdm.samplers.rewrite import Rewrite
    from multimdm.samplers.scheduler import ProcessScheduler, SchedulerOutput
    from multimdm.samplers.settings import Sampling
    from multimdm.samplers.trace import Trace

__all__ = [
    "Ancestral",
    "Batch",
    "Choice",
    "Confidence",
    "Generated",
    "Hypotheses",
    "LeftToRight",
    "Moved",
    "ProcessScheduler",
    "Question",
    "Rewrite",
    "Sampling",
    "SamplingAdvice",
    "SchedulerOutput",
    "Step",
    "Trace",
    "ask",
    "generate",
    "generate_autoregressive",
    "generate_candi",
    "most_remasked",
    "remask_sample",
    "resolve",
    "time_grid",
]

__getattr__ = on_demand(
    __name__,
    {
        "Ancestral": "ancestral",
        "Batch": "batch",
        "Choice": "choice",
        "Confidence": "confidence",
        "Generated": "loop",
        "Hypotheses": "question",
        "LeftToRight": "left_to_right",
        "Moved": "loop",
        "ProcessScheduler": "scheduler",
        "Question": "question",
        "Rewrite": "rewrite",
        "Sampling": "settings",
        "SamplingAdvice": "advice",
        "SchedulerOutput": "scheduler",
        "Step": "loop",
        "Trace": "trace",
        "ask": "question",
        "generate": "loop",
        "generate_autoregressive": "autoregressive",
        "generate_candi": "candi",
        "most_remasked": "corrector",
        "remask_sample": "corrector",
        "resolve": "advice",
        "time_grid": "grid",
    },
)
