from .base import Batch, Distillation, Objective, Sums
from .candi import Candi
from .consistency import Consistency
from .context import Context
from .curricula import Ramp
from .elbo import Elbo, RelaxedElbo
from .next_token import NextToken
from .sdtt import Sdtt
from .settings import ConsistencySettings, ContextSettings, Relaxation, SdttSettings, Shares, TimeSettings
from .tied import Tied
from .times import stratified_times

__all__ = [
    "Batch",
    "Candi",
    "Consistency",
    "ConsistencySettings",
    "Context",
    "ContextSettings",
    "Distillation",
    "Elbo",
    "NextToken",
    "Objective",
    "Ramp",
    "Relaxation",
    "RelaxedElbo",
    "Sdtt",
    "SdttSettings",
    "Shares",
    "Sums",
    "Tied",
    "TimeSettings",
    "stratified_times",
]
