"""From the name of a teacher to the teacher, checked against the texts before any work."""

import torch

from multimdm._checks import require
from multimdm.data.tales import Tales
from multimdm.data.tokenizer import Tokenizer
from multimdm.evaluation.language_models import find_language_model
from multimdm.evaluation.teachers.autoregressive import AutoregressiveTeacher
from multimdm.evaluation.teachers.base import QuantileTeacher
from multimdm.evaluation.teachers.causal_lm import CausalLMTeacher
from multimdm.evaluation.teachers.exact import TalesTeacher
from multimdm.pipeline import Model

_TALES = "tales"


def find_teacher(
    name: str, tokenizer: Tokenizer, length: int, device: torch.device, begins: int | None = None
) -> QuantileTeacher:
    """tales (its exact conditionals), an autoregressive checkpoint of ours, or a causal language model.

    `begins` is the token that all texts begin with, if there is one.
    """
    if name == _TALES:
        require(
            tokenizer.name == _TALES,
            f"teacher 'tales' is for stories of Tales; the texts have the tokenizer '{tokenizer.name}'",
        )
        return TalesTeacher(Tales(length))
    found = find_language_model(name, device, "teacher")
    if not isinstance(found.content, Model):
        return CausalLMTeacher(found.label, found.fingerprint, found.content, tokenizer, length, begins)
    theirs = found.content.tokenizer
    require(
        theirs is not None and theirs.fingerprint == tokenizer.fingerprint,
        f"teacher '{name}' must have the tokenizer of the texts; it has {theirs!r}, the texts {tokenizer!r}: prepare "
        "the texts with the teacher's tokenizer, or train a teacher on them",
    )
    return AutoregressiveTeacher(found.label, found.fingerprint, found.content, length)
