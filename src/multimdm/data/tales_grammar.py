"""Story grammars: p(story) = ∏ p(variable | parent) ∏ p(template | chooser) ∏ p(phrase | variable).

A story has a few variables (who, where, what) and a fixed number of sentences. Each sentence takes one of its
templates; each symbol of a template is replaced by a phrase drawn from a choice, which may depend on the value of one
variable. Agreement is nothing but two symbols that depend on the same variable.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from multimdm._checks import require

PAD, END, STOP = "[PAD]", "[END]", "."
SPECIAL = (PAD, END, STOP)

_SYMBOL = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Choice:
    """p(phrase | value of a variable), or p(phrase) if nothing is given."""

    phrases: tuple[str, ...]
    """Each is one word or several, separated by blanks."""
    table: tuple[tuple[float, ...], ...]
    """A row per value of the given variable (one row if there is none), a column per phrase; rows sum to one."""
    given: str | None = None
    values: tuple[str, ...] = ()
    """What the rows stand for: the values of the given variable, in its order."""


def words(text: str) -> Choice:
    """The phrases of a comma-separated list; the r-th of n has a probability in proportion to 1 / (r + n / 2).

    The first is thus about three times as likely as the last.
    """
    phrases = tuple(phrase.strip() for phrase in text.split(","))
    weights = [1.0 / (rank + len(phrases) / 2) for rank in range(1, len(phrases) + 1)]
    return Choice(phrases, (tuple(weight / sum(weights) for weight in weights),))


def by(variable: str, lists: Mapping[str, str]) -> Choice:
    """One comma-separated list of phrases for each value of a variable, in the order of its values.

    The probabilities within each list are those of `words`.
    """
    each = [words(text) for text in lists.values()]
    phrases = tuple(dict.fromkeys(phrase for choice in each for phrase in choice.phrases))
    known = [dict(zip(choice.phrases, choice.table[0], strict=True)) for choice in each]
    table = tuple(tuple(row.get(phrase, 0.0) for phrase in phrases) for row in known)
    return Choice(phrases, table, variable, tuple(lists))


def articles(variable: str, values: tuple[str, ...]) -> Choice:
    """The indefinite article of each value."""
    return by(variable, {value: article(value) for value in values})


def article(word: str) -> str:
    """Either "a" or "an", by the first letter: good for words that sound as they are spelt."""
    return "an" if word[0] in "aeiou" else "a"


@dataclass(frozen=True)
class Sentence:
    """The templates of one sentence: p(template | value of a variable), or p(template) if nothing is given.

    The stop at the end is implied.
    """

    templates: Mapping[tuple[str, ...], Mapping[str, float | int]]
    """(values of the given variable) -> template -> weight; the one key is () if nothing is given."""
    given: str | None = None


@dataclass(frozen=True)
class Grammar:
    """Variables (parents first), choices by symbol, and sentences in their order.

    A symbol that names a variable stands for its value.
    """

    variables: Mapping[str, Choice]
    choices: Mapping[str, Choice]
    sentences: tuple[Sentence, ...]

    def __post_init__(self) -> None:
        require(len(self.sentences) >= 1, "sentences must hold at least one sentence; got none")
        seen: set[str] = set()
        for name, variable in self.variables.items():
            self._check_choice(name, variable, seen)
            seen.add(name)
        for name, choice in self.choices.items():
            require(name not in seen, f"choices must not repeat the name of a variable; got {name!r} in both")
            self._check_choice(name, choice, seen)
        for sentence in self.sentences:
            self._check_sentence(sentence)

    def _check_choice(self, name: str, choice: Choice, known: set[str]) -> None:
        require(
            choice.given is None or choice.given in known,
            f"{name} must depend on a variable that stands before it; got {choice.given!r}",
        )
        values = self.variables[choice.given].phrases if choice.given is not None else ()
        require(
            choice.values == values and len(choice.table) == max(len(values), 1),
            f"{name} must have a row of probabilities for each value of {choice.given!r}, in the order {values}; "
            f"got {len(choice.table)} for {choice.values}",
        )
        for row in choice.table:
            require(
                len(row) == len(choice.phrases) and min(row) >= 0 and abs(sum(row) - 1) < 1e-9,
                f"{name} must have rows of {len(choice.phrases)} probabilities that sum to one; got {row}",
            )
        require(
            len({tuple(phrase.split()) for phrase in choice.phrases}) == len(choice.phrases),
            f"{name} must not list a phrase twice, for derivations to be told apart; got {choice.phrases}",
        )
        for phrase in choice.phrases:
            self._check_words(name, phrase)

    def _check_sentence(self, sentence: Sentence) -> None:
        given = sentence.given
        require(
            given is None or given in self.variables,
            f"a sentence must be given a variable or nothing; got {given!r}",
        )
        values = self.variables[given].phrases if given is not None else ()
        used = {value for group in sentence.templates for value in group}
        require(
            used == set(values) and (given is not None or set(sentence.templates) == {()}),
            f"a sentence must have templates for each of {values} and no other value; got {sorted(used)}",
        )
        for group in sentence.templates.values():
            for text, weight in group.items():
                require(weight > 0, f"weights of templates must be positive; got {weight} for {text!r}")
                for symbol in _SYMBOL.findall(text):
                    require(
                        symbol in self.variables or symbol in self.choices,
                        f"a template must use known symbols; got {symbol!r} in {text!r}",
                    )
                self._check_words("a template", _SYMBOL.sub("x", text))

    @staticmethod
    def _check_words(name: str, phrase: str) -> None:
        require(
            bool(phrase.split()) and all(re.fullmatch(r"[\w']+", word) for word in phrase.split()),
            f"{name} must be made of words of letters, digits and apostrophes; got {phrase!r}",
        )

    def symbols(self, text: str) -> list[Choice]:
        """The choices that a template is made of, the stop included; a plain word is a choice of one."""
        return [*(self._symbol(word) for word in text.split()), Choice((STOP,), ((1.0,),))]

    def _symbol(self, word: str) -> Choice:
        match = _SYMBOL.fullmatch(word)
        if match is None:
            return Choice((word,), ((1.0,),))
        name = match[1]
        if name in self.choices:
            return self.choices[name]
        values = self.variables[name].phrases
        return by(name, {value: value for value in values})

    def vocabulary(self) -> list[str]:
        """The special tokens, then all words in alphabetical order."""
        found: set[str] = set()
        for sentence in self.sentences:
            for group in sentence.templates.values():
                for text in group:
                    for choice in self.symbols(text):
                        found.update(word for phrase in choice.phrases for word in phrase.split())
        return [*SPECIAL, *sorted(found - set(SPECIAL), key=lambda word: (word.lower(), word))]
