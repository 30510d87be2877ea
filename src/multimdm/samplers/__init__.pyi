from .advice import SamplingAdvice, resolve
from .ancestral import Ancestral
from .autoregressive import generate_autoregressive
from .batch import Batch
from .candi import generate_candi
from .choice import Choice
from .confidence import Confidence
from .corrector import most_remasked, remask_sample
from .grid import time_grid
from .left_to_right import LeftToRight
from .loop import Generated, Moved, Step, generate
from .question import Hypotheses, Question, ask
from .rewrite import Rewrite
from .scheduler import ProcessScheduler, SchedulerOutput
from .settings import Sampling
from .trace import Trace

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
