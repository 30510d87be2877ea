"""What a story is about: the values of the grammar's variables, read off its text, and their exact law.

A variable whose values are words that nothing else in the grammar writes is read by the first such word. One that shows
in the choice of sentences alone, as the event does, is read as the value under which the text is most probable. Both
are exact for stories of the pure source; other texts have a reading too, and "none" where no word of a kind occurs.
"""

from copy import copy
from dataclasses import replace

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from multimdm.data.tales_grammar import Grammar
from multimdm.data.tales_inference import Judge
from multimdm.data.tales_plan import Part, Plan, SentencePlan


class Variables:
    """Reads the variables of one grammar."""

    def __init__(self, plan: Plan, grammar: Grammar) -> None:
        self._plan, self._grammar = plan, grammar

    def size(self, name: str) -> int:
        """The number of readings of a variable: its values, and one for none of them."""
        return self._plan.size(name) + 1

    def law(self, *names: str) -> Float64[Tensor, " readings"]:
        """p of every combination of readings of these variables, the last one varying fastest; none has 0."""
        joint = self._plan.joint(names)
        for dimension in range(joint.ndim):
            shape = [size + (d == dimension) for d, size in enumerate(joint.shape)]
            wider = joint.new_zeros(shape)
            wider[tuple(slice(size) for size in joint.shape)] = joint
            joint = wider
        return joint.flatten()

    def read(self, name: str, ids: Int64[Tensor, "num length"], epsilon: float = 1e-3) -> Int64[Tensor, " num"]:
        """The reading of a variable in each text; `epsilon` is that of the judged source."""
        values = self._grammar.variables[name].phrases
        if all(phrase in self._plan.index for phrase in values) and self._in_text(name):
            return self._first_word(name, ids)
        return self._most_probable(name, ids, epsilon)

    def _in_text(self, name: str) -> bool:
        """Whether the values themselves stand in some sentence."""
        words = {self._plan.index.get(phrase) for phrase in self._grammar.variables[name].phrases}
        parts = {part for sentence in self._plan.sentences for one in sentence.templates for part in one.parts}
        writes = [part for part in parts if part.given == name]
        return any({phrase[0] for phrase in part.phrases if len(phrase) == 1} == words for part in writes)

    def _first_word(self, name: str, ids: Tensor) -> Tensor:
        values = [self._plan.index[phrase] for phrase in self._grammar.variables[name].phrases]
        none = len(values)
        value_of = torch.full((len(self._plan.vocabulary),), none)
        value_of[values] = torch.arange(none)
        found = value_of[ids]
        first = (found < none).long().argmax(1)  # 0 if there is none, where no value stands either
        return found.gather(1, first[:, None])[:, 0]

    def _most_probable(self, name: str, ids: Tensor, epsilon: float) -> Tensor:
        """argmax over values of p(text, value)."""
        prior = self._plan.priors[name]
        scores = [Judge(_given(self._plan, name, value), epsilon).log_prob(ids) for value in range(prior.shape[1])]
        return (torch.stack(scores, 1) + prior[0].log()).argmax(1)


def _given(plan: Plan, name: str, value: int) -> Plan:
    """The plan with one value of a variable that has no parent, as its only one: smaller messages, fewer templates."""
    parts: dict[Part, Part] = {}

    def part_of(part: Part) -> Part:
        if part.given != name:
            return part
        return parts.setdefault(part, Part(name, part.table[value : value + 1], part.phrases))

    def sentence_of(sentence: SentencePlan) -> SentencePlan:
        templates, weights = sentence.templates, sentence.weights
        if sentence.given == name:
            weights = weights[value : value + 1]
            kept = weights[0].nonzero()[:, 0].tolist()
            templates, weights = tuple(templates[number] for number in kept), weights[:, kept]
        templates = tuple(replace(one, parts=tuple(map(part_of, one.parts))) for one in templates)
        return replace(sentence, templates=templates, weights=weights)

    given = copy(plan)
    given.priors = {**plan.priors, name: torch.ones(1, 1, dtype=torch.float64)}
    for child in (child for child, parent in plan.parents.items() if parent == name):
        given.priors[child] = plan.priors[child][value : value + 1]
    given.sentences = [sentence_of(sentence) for sentence in plan.sentences]
    return given
