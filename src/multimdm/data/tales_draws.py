"""Draws from a story grammar: variables, then templates, then phrases, all stories at once."""

from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from multimdm.data.tales_grammar import END, PAD
from multimdm.data.tales_plan import Part, Plan, SentencePlan
from multimdm.process.draws import Generator, uniform


@dataclass(frozen=True)
class Derivations:
    """Stories together with the probability of the way in which they were made."""

    ids: Int64[Tensor, "num length"]
    log_prob: Float64[Tensor, " num"]
    """log p of all draws that were made: that of the story, if the grammar is unambiguous."""


class _Draws:
    """The uniforms of a batch, taken column by column, and the log-probability of what they chose."""

    def __init__(self, u: Tensor) -> None:
        self.u = u
        self.column = 0
        self.log_prob = torch.zeros(len(u), dtype=torch.float64)

    def choose(self, table: Tensor, values: Tensor, rows: Tensor | slice = slice(None)) -> Tensor:
        """One index per story, from the row of the table that belongs to its value."""
        running = table.cumsum(1)
        # Rounding must not carry a draw past the last phrase with any probability.
        running[running >= running[:, -1:]] = torch.inf
        u = self.u[rows, self.column].contiguous()
        index = torch.searchsorted(running[values], u[:, None], right=True)[:, 0]
        self.log_prob[rows] += table[values, index].log()
        self.column += 1
        return index


def derive(plan: Plan, length: int, num: int, generator: Generator) -> Derivations:
    """Draw `num` stories, each padded to `length`."""
    columns = len(plan.priors) + sum(1 + _most_parts(sentence) for sentence in plan.sentences)
    draws = _Draws(uniform((num, columns), generator, "cpu"))
    nothing = torch.zeros(num, dtype=torch.long)
    values: dict[str | None, Tensor] = {None: nothing}
    for name, table in plan.priors.items():
        values[name] = draws.choose(table, values[plan.parents[name]])
    pieces = [_write(sentence, draws, values) for sentence in plan.sentences]
    pieces.append((nothing + plan.index[END])[:, None])
    # Phrases are of different lengths: move the gaps between them to the end, where they become padding.
    gapped = torch.nn.functional.pad(torch.cat(pieces, dim=1), (0, length), value=-1)
    ids = gapped.gather(1, torch.argsort((gapped < 0).int(), dim=1, stable=True))[:, :length]
    return Derivations(torch.where(ids < 0, plan.index[PAD], ids), draws.log_prob)


def _write(sentence: SentencePlan, draws: _Draws, values: dict[str | None, Tensor]) -> Tensor:
    """The tokens of one sentence of every story, with -1 in the gaps."""
    chosen = draws.choose(sentence.weights, values[sentence.given])
    width = max(sum(part.lengths[-1] for part in template.parts) for template in sentence.templates)
    tokens = torch.full((len(chosen), width), -1)
    first = draws.column
    for number, template in enumerate(sentence.templates):
        rows = (chosen == number).nonzero()[:, 0]
        draws.column, offset = first, 0
        for part in template.parts:
            index = draws.choose(part.table, values[part.given][rows], rows) if _is_open(part) else 0
            tokens[rows, offset : offset + part.lengths[-1]] = part.padded[index]
            offset += part.lengths[-1]
    draws.column = first + _most_parts(sentence)
    return tokens


def _is_open(part: Part) -> bool:
    """Whether there is anything to choose from."""
    return len(part.phrases) > 1


def _most_parts(sentence: SentencePlan) -> int:
    """How many draws the phrases of a sentence take at most."""
    return max(sum(_is_open(part) for part in template.parts) for template in sentence.templates)
