"""q(a | x^{<l}), the law of the next token of a story grammar given all tokens before it, exactly.

A story is written by a hidden chain. Its state h is a place in the grammar (which symbol of which template, how much of
its phrase) with the values of the variables that words have depended on so far; each move writes one token. With
w_l(h) = p(h | x^{<l}),

    q(a | x^{<l}) = Σ_h w_l(h) Σ_h' p(a, h' | h)
    w_{l+1}(h')   = Σ_h w_l(h) p(x^l, h' | h) / q(x^l | x^{<l}).

What lies ahead sums to one, so nothing is chosen before it is needed: a template when its sentence begins, a variable
(after its parents) at the first word that depends on it, the length of a phrase when it goes on or ends. Only states of
positive weight are listed. A word or two leave few of them, and at each stop the values that no later sentence asks for
are forgotten and the states that have become equal are added up, so the work per token hardly depends on the size of
the grammar.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float64, Int64, Integer
from torch import Tensor

from multimdm._checks import require
from multimdm.data.tales_grammar import END, PAD
from multimdm.data.tales_plan import Part, Plan, SentencePlan, Template
from multimdm.process.checks import check_ids, debug_checks
from multimdm.process.quantile import Order, token_at

_SILENT = -1
"""The token of a move that writes none."""
_OPEN = -1
"""The value of a variable that has not been drawn."""


class Hypotheses(NamedTuple):
    """The states that all stories of a batch may be in: a list of (story, place, values), with w_l(h)."""

    story: Int64[Tensor, " n"]
    place: Int64[Tensor, " n"]
    values: Int64[Tensor, "n columns"]
    """One column per variable, and one of zeros for what depends on none."""
    weight: Float64[Tensor, " n"]

    def take(self, rows: Integer[Tensor, " m"] | Bool[Tensor, " n"]) -> "Hypotheses":
        """Some of them, in the order of the rows."""
        return Hypotheses(*(field[rows] for field in self))

    def join(self, others: "Hypotheses") -> "Hypotheses":
        """These hypotheses and others."""
        return Hypotheses(*(torch.cat(pair) for pair in zip(self, others, strict=True)))


class Moves(NamedTuple):
    """What hypotheses can do next: rows of their list, and the numbers of moves in the tables of the chain."""

    row: Int64[Tensor, " moves"]
    number: Int64[Tensor, " moves"]


class Chain:
    """A grammar as places and moves: p(token, next place | place, value of one variable).

    It is built from the end, so that every move knows where it leads.
    """

    def __init__(self, plan: Plan) -> None:
        self.vocabulary = plan.vocabulary
        self._names = list(plan.priors)
        self.priors = list(plan.priors.values())
        """p(value | value of the parent) of every column."""
        self.parents = [self._column(plan.parents[name]) for name in self._names]
        """The column of the parent of every column; parents stand before their children."""
        self._places: list[tuple[int, Tensor]] = []
        self._moves: list[tuple[Tensor, Tensor, Tensor]] = []
        self._nodes: dict[Part, dict[tuple[int, ...], _Node]] = {}
        asked = self._closure(self._column(None))
        padding = self._add(None, [plan.index[PAD]], [0], _certain())  # place 0, which leads to itself
        end = self._add(None, [plan.index[END]], [padding], _certain())
        then = self._add(None, [_SILENT], [end], _certain())
        boundaries = {then: asked}
        for sentence in reversed(plan.sentences):
            asked = asked | self._asked(sentence)
            templates = [self._add_template(template, then) for template in sentence.templates]
            then = self._add(sentence.given, [_SILENT] * len(templates), templates, sentence.weights)
            boundaries[then] = asked
        self.start = then
        self._make_tables(boundaries)

    def _make_tables(self, boundaries: dict[int, Tensor]) -> None:
        """The lists of places and moves as tensors, by place, by (place, value) and by move."""
        columns, counts = zip(*self._places, strict=True)
        self.column = torch.tensor(columns)
        """The column of the value that the moves of every place depend on."""
        self.first = torch.tensor([0, *(len(count) for count in counts[:-1])]).cumsum(0)
        """Where the values of every place begin."""
        self.count = torch.cat(counts)
        self.begin = self.count.cumsum(0) - self.count
        """How many moves every place has at a value, and where they begin."""
        self.token, self.target, self.prob = (torch.cat(parts) for parts in zip(*self._moves, strict=True))
        self.needs = torch.stack([self._closure(column) for column in columns])
        """Which variables must be drawn at every place."""
        self.is_boundary = torch.tensor([place in boundaries for place in range(len(columns))])
        """Whether a sentence begins at a place, or the story ends."""
        self.asked = torch.zeros_like(self.needs)
        """Which variables are asked for from a place on, known at boundaries only."""
        for place, asked in boundaries.items():
            self.asked[place] = asked

    def moves(self, hypotheses: Hypotheses) -> Moves:
        """All moves of positive probability; the variables they depend on must have been drawn."""
        place = hypotheses.place
        value = hypotheses.values.gather(1, self.column[place, None])[:, 0]
        where = self.first[place] + value
        count = self.count[where]
        row = torch.repeat_interleave(count)
        # Counting runs through all rows: each begins anew at the first of its own moves.
        shift = self.begin[where] - (count.cumsum(0) - count)
        return Moves(row, torch.arange(len(row)) + shift[row])

    def apply(self, hypotheses: Hypotheses, moves: Moves) -> Hypotheses:
        """Where the moves lead, with the weights w_l(h) p(a, h' | h)."""
        before = hypotheses.take(moves.row)
        return before._replace(place=self.target[moves.number], weight=before.weight * self.prob[moves.number])

    def _column(self, name: str | None) -> int:
        return len(self._names) if name is None else self._names.index(name)

    def _closure(self, column: int) -> Tensor:
        """A column and those of its ancestors, as marks; the column of zeros is an ancestor of all."""
        found = torch.zeros(len(self._names) + 1, dtype=torch.bool)
        while column < len(self._names):
            found[column] = True
            column = self.parents[column]
        found[column] = True
        return found

    def _asked(self, sentence: SentencePlan) -> Tensor:
        """What some template of the sentence may depend on; ancestors count, since their children may be open still."""
        names = {sentence.given, *(name for template in sentence.templates for name in template.variables)}
        return torch.stack([self._closure(self._column(name)) for name in names]).any(0)

    def _add(self, given: str | None, tokens: list[int], targets: list[int], probs: Tensor) -> int:
        """A new place with moves of probabilities [values, moves]; those of probability zero are left out."""
        value, move = probs.nonzero(as_tuple=True)
        self._places.append((self._column(given), torch.bincount(value, minlength=len(probs))))
        self._moves.append((torch.tensor(tokens)[move], torch.tensor(targets)[move], probs[value, move]))
        return len(self._places) - 1

    def _add_template(self, template: Template, then: int) -> int:
        """The places of a template that leads to `then`; its first one."""
        for part in reversed(template.parts):
            then = self._add_part(part, then)
        return then

    def _add_part(self, part: Part, then: int) -> int:
        """A place for every beginning of a phrase; that of the empty one."""
        if part not in self._nodes:
            self._nodes[part] = _tree(part)
        places: dict[tuple[int, ...], int] = {}
        for begun, node in self._nodes[part].items():
            targets = [then if ends else places[(*begun, token)] for token, ends in node.words]
            places[begun] = self._add(part.given, [token for token, _ in node.words], targets, node.probs)
        return places[()]


class _Node(NamedTuple):
    """How a phrase goes on after its beginning: p(next word, whether it is the last | value, beginning)."""

    words: list[tuple[int, bool]]
    probs: Tensor
    """[values, words]; zeros for values with which the phrase does not begin so."""


def _tree(part: Part) -> dict[tuple[int, ...], _Node]:
    """The node of every beginning of a phrase, the longest beginnings first."""
    beginnings = {phrase[:size] for phrase in part.phrases for size in range(len(phrase))}
    return {begun: _node(part, begun) for begun in sorted(beginnings, key=lambda begun: (-len(begun), begun))}


def _node(part: Part, begun: Sequence[int]) -> _Node:
    size = len(begun)
    sums: dict[tuple[int, bool], Tensor] = {}
    for phrase, column in zip(part.phrases, part.table.T, strict=True):
        if len(phrase) > size and phrase[:size] == begun:
            word = (phrase[size], len(phrase) == size + 1)
            sums[word] = sums[word] + column if word in sums else column
    joint = torch.stack(list(sums.values()), dim=1)
    total = joint.sum(1, keepdim=True)
    return _Node(list(sums), joint / torch.where(total > 0, total, 1.0))


def _certain() -> Tensor:
    return torch.ones(1, 1, dtype=torch.float64)


class Reader:
    """Reads the stories of a batch token by token, and knows the law of the next one.

    A story's laws do not depend on its neighbours in the batch, to the last bit.
    """

    def __init__(self, chain: Chain, num: int) -> None:
        self._chain, self._num = chain, num
        self.position = 0
        """How many tokens have been read."""
        values = torch.full((num, len(chain.priors) + 1), _OPEN)
        values[:, -1] = 0
        weight = torch.ones(num, dtype=torch.float64)
        self._arrive(Hypotheses(torch.arange(num), torch.full((num,), chain.start), values, weight))

    def predict(self) -> Float64[Tensor, "num V"]:
        """q(. | x^{<l}): the law of the next token."""
        chain, hypotheses, moves = self._chain, self._hypotheses, self._moves
        V = len(chain.vocabulary)
        cell = hypotheses.story[moves.row] * V + chain.token[moves.number]
        mass = hypotheses.weight[moves.row] * chain.prob[moves.number]
        return mass.new_zeros(self._num * V).index_add_(0, cell, mass).reshape(self._num, V)

    def observe(self, tokens: Integer[Tensor, " num"]) -> None:
        """Read the next token of each story; one of probability zero is an error."""
        with debug_checks():
            check_ids("tokens", tokens, len(self._chain.vocabulary))
        require(tokens.shape == (self._num,), f"tokens must have shape [{self._num}]; got {list(tokens.shape)}")
        tokens = tokens.to("cpu", torch.long)
        fits = self._chain.token[self._moves.number] == tokens[self._hypotheses.story[self._moves.row]]
        after = self._chain.apply(self._hypotheses, Moves(*(field[fits] for field in self._moves)))
        total = after.weight.new_zeros(self._num).index_add_(0, after.story, after.weight)
        self._check_possible(tokens, total > 0)
        self.position += 1
        self._arrive(after._replace(weight=after.weight / total[after.story]))

    def _check_possible(self, tokens: Tensor, possible: Tensor) -> None:
        if bool(possible.all()):
            return
        story = int((~possible).nonzero()[0])
        token = int(tokens[story])
        raise ValueError(
            f"the tokens must be those of a story that the pure source can make; got token {token} "
            f"({self._chain.vocabulary[token]!r}) at position {self.position} of story {story}, where its probability "
            f"is 0 given the tokens before it ({int((~possible).sum())} such stories of {self._num} at this position)"
        )

    def _arrive(self, hypotheses: Hypotheses) -> None:
        """Choose a template where a sentence begins; then draw what the next word depends on."""
        begins = self._chain.is_boundary[hypotheses.place]
        if bool(begins.any()):
            beginning = self._draw(self._forget(hypotheses.take(begins)))
            opened = self._chain.apply(beginning, self._chain.moves(beginning))
            hypotheses = hypotheses.take(~begins).join(opened)
        self._hypotheses = self._draw(hypotheses)
        self._moves = self._chain.moves(self._hypotheses)

    def _forget(self, hypotheses: Hypotheses) -> Hypotheses:
        """Σ over the values of variables that nothing asks for any more."""
        story, place, values, weight = hypotheses
        values = torch.where(self._chain.asked[place], values, _OPEN)
        keys, group = torch.unique(torch.column_stack([story, place, values]), dim=0, return_inverse=True)
        return Hypotheses(keys[:, 0], keys[:, 1], keys[:, 2:], weight.new_zeros(len(keys)).index_add_(0, group, weight))

    def _draw(self, hypotheses: Hypotheses) -> Hypotheses:
        """p(value | parent) for the variables that are needed where the hypotheses are and are open still."""
        chain = self._chain
        lacking = chain.needs[hypotheses.place] & (hypotheses.values == _OPEN)
        for column in lacking.any(0).nonzero()[:, 0].tolist():
            open_here = chain.needs[hypotheses.place, column] & (hypotheses.values[:, column] == _OPEN)
            before = hypotheses.take(open_here)
            probs = chain.priors[column][before.values[:, chain.parents[column]]]
            row, value = probs.nonzero(as_tuple=True)
            drawn = before.take(row)
            drawn.values[:, column] = value
            drawn = drawn._replace(weight=drawn.weight * probs[row, value])
            hypotheses = hypotheses.take(~open_here).join(drawn)
        return hypotheses


def conditionals(chain: Chain, ids: Int64[Tensor, "num length"]) -> Iterator[Float64[Tensor, "num V"]]:
    """q(. | x^{<l}) for l = 0, 1, ...; an impossible token is an error before the law of its position is given."""
    reader = Reader(chain, len(ids))
    for tokens in ids.T:
        law = reader.predict()
        reader.observe(tokens)
        yield law


def write(chain: Chain, numbers: Float64[Tensor, "num length"], order: Order = "id") -> Int64[Tensor, "num length"]:
    """x^l is the token in whose cell, under q(. | x^{<l}), the l-th number falls."""
    reader = Reader(chain, len(numbers))
    ids = torch.empty(numbers.shape, dtype=torch.long)
    for place, u in enumerate(numbers.T):
        ids[:, place] = token_at(reader.predict(), u, order)
        reader.observe(ids[:, place])
    return ids
