"""Autoregressive models whose conditionals tie noise to texts: ours, any causal language model, Tales itself."""

from multimdm.evaluation.teachers.autoregressive import AutoregressiveTeacher
from multimdm.evaluation.teachers.base import QuantileTeacher
from multimdm.evaluation.teachers.causal_lm import CausalLMTeacher
from multimdm.evaluation.teachers.exact import TalesTeacher
from multimdm.evaluation.teachers.finding import find_teacher

__all__ = ["AutoregressiveTeacher", "CausalLMTeacher", "QuantileTeacher", "TalesTeacher", "find_teacher"]
