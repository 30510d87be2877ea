"""From the name of a judge to the judge, before any sampling is done."""

import torch

from multimdm.evaluation.judges.autoregressive import AutoregressiveJudge
from multimdm.evaluation.judges.base import Judge
from multimdm.evaluation.judges.causal_lm import CausalLMJudge
from multimdm.evaluation.judges.exact import TalesJudge
from multimdm.evaluation.language_models import Found, find_language_model
from multimdm.evaluation.tales_models import tales_for
from multimdm.pipeline import Model
from multimdm.pipeline.generation import length_of, tokenizer_of


class Judges:
    """Finds judges by name. Networks are loaded once for each device, however many models they are to judge.

    They are loaded when a judge is made, not when it is first asked: a file that cannot be read is told of before any
    work.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[str, torch.device], Found] = {}

    def make(self, name: str, model: Model, length: int | None = None) -> Judge:
        """The judge of this name for samples of the model; an error that tells what cannot be found."""
        L = length_of(model, length)
        if name == "tales":
            return TalesJudge(tales_for(model, L))
        reader, device = tokenizer_of(model, f"the judge '{name}'"), next(model.network.parameters()).device
        if (name, device) not in self._found:
            self._found[name, device] = find_language_model(name, device, "judge")
        found = self._found[name, device]
        if isinstance(found.content, Model):
            return AutoregressiveJudge(found.label, found.fingerprint, found.content, reader, L)
        return CausalLMJudge(found.label, found.fingerprint, found.content, reader)


def make_judge(name: str, model: Model, length: int | None = None) -> Judge:
    """One judge by itself."""
    return Judges().make(name, model, length)
