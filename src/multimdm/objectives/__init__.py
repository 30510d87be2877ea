"""What training makes small: the ELBO with its curricula, DUO's relaxation, CANDI, the next token, distillation."""

from typing import TYPE_CHECKING

from multimdm.lazy import on_demand

if TYPE_CHECKING:
    from multimdm.objectives.base import Batch, Distillation, Objective, Sums
    from multimdm.objectives.candi import Candi
    from multimdm.objectives.consistency import Consistency
    from multimdm.objectives.context import Context
    from multimdm.objectives.coupled import Coupled
    from multimdm.objectives.elbo import Elbo
    from multimdm.objectives.next_token import NextToken
    from multimdm.objectives.ramp import Ramp
    from multimdm.objectives.relaxation import RelaxedElbo
    from multimdm.objectives.sdtt import Sdtt
    from multimdm.objectives.settings import (
        ConsistencySettings,
        ContextSettings,
        Relaxation,
        SdttSettings,
        Shares,
        TimeSettings,
    )
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

__getattr__ = on_demand(
    __name__,
    {
        "Batch": "base",
        "Candi": "candi",
        "Consistency": "consistency",
        "ConsistencySettings": "settings",
        "Context": "context",
        "ContextSettings": "settings",
        "Coupled": "coupled",
        "Distillation": "base",
        "Elbo": "elbo",
        "NextToken": "next_token",
        "Objective": "base",
        "Ramp": "ramp",
        "Relaxation": "settings",
        "RelaxedElbo": "relaxation",
        "Sdtt": "sdtt",
        "SdttSettings": "settings",
        "Shares": "settings",
        "Sums": "base",
        "TimeSettings": "settings",
        "stratified_times": "times",
    },
)
