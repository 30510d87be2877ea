"""Judges of generated text: how probable is it to someone who knows the language?"""

from multimdm.evaluation.judges.base import Judge, Scores
from multimdm.evaluation.judges.finding import Judges, make_judge

__all__ = ["Judge", "Judges", "Scores", "make_judge"]
