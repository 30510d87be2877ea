"""What training makes small: the ELBO with its curricula, DUO's relaxation, the next token."""

from multimdm.objectives.base import Batch, Objective, Sums
from multimdm.objectives.elbo import Elbo
from multimdm.objectives.next_token import NextToken
from multimdm.objectives.ramp import Ramp
from multimdm.objectives.relaxation import Relaxation, RelaxedElbo
from multimdm.objectives.times import stratified_times

__all__ = ["Batch", "Elbo", "NextToken", "Objective", "Ramp", "Relaxation", "RelaxedElbo", "Sums", "stratified_times"]
