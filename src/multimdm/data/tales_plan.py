"""A grammar made ready for computing: token ids, tables, and which variables are alive between sentences.

A variable comes to life in the first sentence that needs it and is summed out after the last one, so messages between
sentences range over few variables at a time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import torch
from torch import Tensor

from multimdm._checks import require
from multimdm.data.tales_grammar import Choice, Grammar


@dataclass(frozen=True, eq=False)
class Part:
    """One symbol of a template: p(phrase | value)."""

    given: str | None
    table: Tensor
    """[values of the given variable or 1, phrases]."""
    phrases: tuple[tuple[int, ...], ...]
    """The token ids of each phrase."""

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """The different lengths of the phrases."""
        return tuple(sorted({len(phrase) for phrase in self.phrases}))

    @cached_property
    def padded(self) -> Tensor:
        """[phrases, longest length]: token ids, filled up with -1."""
        return torch.tensor([[*phrase, *[-1] * (self.lengths[-1] - len(phrase))] for phrase in self.phrases])


@dataclass(frozen=True, eq=False)
class Template:
    """A sequence of parts, the last of them the stop."""

    parts: tuple[Part, ...]
    variables: frozenset[str]
    """What its parts are given."""

    def alignments(self) -> list[tuple[int, ...]]:
        """Every way in which the lengths of the parts can be chosen."""
        return list(product(*(part.lengths for part in self.parts)))


@dataclass(frozen=True, eq=False)
class SentencePlan:
    """The templates of a sentence, p(template | value), and the variables before, in and after it."""

    given: str | None
    templates: tuple[Template, ...]
    weights: Tensor
    """[values of the given variable or 1, templates]."""
    before: tuple[str, ...]
    """Alive when the sentence begins."""
    new: tuple[str, ...]
    """Drawn in this sentence."""
    after: tuple[str, ...]
    """Alive when the sentence has ended: a part of `before` and `new`, in that order."""

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """The different numbers of tokens, the stop included."""
        return tuple(sorted({sum(lengths) for template in self.templates for lengths in template.alignments()}))


class Plan:
    """All sentences of a grammar, with the prior of its variables."""

    def __init__(self, grammar: Grammar) -> None:
        self.vocabulary = grammar.vocabulary()
        self.index = {word: i for i, word in enumerate(self.vocabulary)}
        self.parents = {name: choice.given for name, choice in grammar.variables.items()}
        self.priors = {name: _table(choice) for name, choice in grammar.variables.items()}
        """The prior of each variable: [values of its parent or 1, values]."""
        self._parts: dict[Choice, Part] = {}
        drafts = [self._draft(grammar, number) for number in range(len(grammar.sentences))]
        first, last = self._lifetimes([_needs(given, templates) for given, templates, _ in drafts])
        for name in self.priors:
            require(name in first, f"every variable must be used by some sentence; {name!r} is not: leave it out")
        self.sentences: list[SentencePlan] = []
        alive: tuple[str, ...] = ()
        for number, (given, templates, weights) in enumerate(drafts):
            new = tuple(name for name in self.priors if first[name] == number)
            after = tuple(name for name in (*alive, *new) if last[name] > number)
            self.sentences.append(SentencePlan(given, templates, weights, alive, new, after))
            alive = after
        self.states = max(math.prod(self.size(name) for name in sentence.after) for sentence in self.sentences)
        """The size of the largest message between sentences."""
        # One stands for the end marker.
        self.shortest = 1 + sum(sentence.lengths[0] for sentence in self.sentences)
        self.longest = 1 + sum(sentence.lengths[-1] for sentence in self.sentences)

    def size(self, name: str) -> int:
        """The number of values of a variable."""
        return self.priors[name].shape[1]

    def joint(self, names: Sequence[str]) -> Tensor:
        """p(names): the prior of several variables, one dimension for each, the others summed out."""
        closure = list(names)
        for name in closure:  # grows while it is read: the ancestors come along
            parent = self.parents[name]
            if parent is not None and parent not in closure:
                closure.append(parent)
        operands: list[Tensor | list[int]] = [torch.ones((), dtype=torch.float64), []]
        for name in closure:
            parent, table = self.parents[name], self.priors[name]
            operands += (
                [table[0], [closure.index(name)]]
                if parent is None
                else [table, [closure.index(parent), closure.index(name)]]
            )
        return torch.einsum(*operands, list(range(len(names))))

    def entropy(self) -> float:
        """H(story) = Σ H(variable | parent) + Σ H(template | chooser) + Σ H(phrase | variable), in nats.

        Exact if different derivations give different stories.
        """
        total = 0.0
        for name, parent in self.parents.items():
            rows = self.joint([parent]) if parent is not None else torch.ones(1, dtype=torch.float64)
            total += float(rows @ _row_entropy(self.priors[name]))
        for sentence in self.sentences:
            chooser = [sentence.given] if sentence.given is not None else []
            total += float(self.joint(chooser).reshape(-1) @ _row_entropy(sentence.weights))
            for template, weights in zip(sentence.templates, sentence.weights.T, strict=True):
                total += sum(self._part_entropy(part, chooser, weights) for part in template.parts)
        return total

    def _part_entropy(self, part: Part, chooser: list[str], weights: Tensor) -> float:
        """P(template) H(phrase | variable, template): the template may tell something about the variable."""
        entropies = _row_entropy(part.table)
        if part.given is None:
            return float(self.joint(chooser).reshape(-1) @ weights * entropies[0])
        if chooser == [part.given]:
            return float((self.joint(chooser) * weights) @ entropies)
        both = self.joint([*chooser, part.given]).reshape(len(weights), -1)
        return float(weights @ both @ entropies)

    def _draft(self, grammar: Grammar, number: int) -> tuple[str | None, tuple[Template, ...], Tensor]:
        sentence = grammar.sentences[number]
        values = grammar.variables[sentence.given].phrases if sentence.given is not None else ()
        templates, columns = [], []
        for group, texts in sentence.templates.items():
            rows = torch.tensor([value in group for value in values] or [True], dtype=torch.float64)
            for text, weight in texts.items():
                parts = tuple(self._part(choice) for choice in grammar.symbols(text))
                templates.append(Template(parts, frozenset(part.given for part in parts if part.given is not None)))
                columns.append(rows * weight)
        weights = torch.stack(columns, dim=1)
        return sentence.given, tuple(templates), weights / weights.sum(1, keepdim=True)

    def _part(self, choice: Choice) -> Part:
        """One part for equal choices, so that their tables are looked up once."""
        if choice not in self._parts:
            phrases = tuple(tuple(self.index[word] for word in phrase.split()) for phrase in choice.phrases)
            self._parts[choice] = Part(choice.given, _table(choice), phrases)
        return self._parts[choice]

    def _lifetimes(self, needs: list[set[str]]) -> tuple[dict[str, int], dict[str, int]]:
        """The first and the last sentence that needs each variable; a parent is needed where its child is drawn."""
        first = {name: min(i for i, need in enumerate(needs) if name in need) for name in set().union(*needs)}
        last = {name: max(i for i, need in enumerate(needs) if name in need) for name in first}
        for name in reversed(self.parents):  # children first
            parent = self.parents[name]
            if name in first and parent is not None:
                first[parent] = min(first.get(parent, first[name]), first[name])
                last[parent] = max(last.get(parent, first[name]), first[name])
        return first, last


def _needs(given: str | None, templates: tuple[Template, ...]) -> set[str]:
    """The variables that a sentence depends on."""
    return set().union(*(template.variables for template in templates), {given} if given is not None else ())


def _table(choice: Choice) -> Tensor:
    return torch.tensor(choice.table, dtype=torch.float64)


def _row_entropy(table: Tensor) -> Tensor:
    """-Σ p log p of each row."""
    return -torch.special.xlogy(table, table).sum(-1)
