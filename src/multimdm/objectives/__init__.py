"""What training makes small: the ELBO with its curricula, DUO's relaxation, CANDI, the next token, distillation."""

from multimdm.objectives.base import Batch, Distillation, Objective, Sums
from multimdm.objectives.candi import Candi
from multimdm.objectives.consistency import Consistency, ConsistencySettings
from multimdm.objectives.context import Context, ContextSettings
from multimdm.objectives.coupled import Coupled
from multimdm.objectives.elbo import Elbo
from multimdm.objectives.next_token import NextToken
from multimdm.objectives.ramp import Ramp
from multimdm.objectives.relaxation import Relaxation, RelaxedElbo
from multimdm.objectives.sdtt import Sdtt, SdttSettings
from multimdm.objectives.states import Shares
from multimdm.objectives.time_density import TimeSettings
from multimdm.objectives.times import stratified_times

__all__ = [
    "Batch",
    "Candi",
    "Consistency",
    "ConsistencySettings",
    "Context",
    "ContextSettings",
    "Coupled",
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
    "TimeSettings",
    "stratified_times",
]
