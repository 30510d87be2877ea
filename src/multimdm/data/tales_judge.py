"""log p(tokens) of a story grammar whose tokens are replaced by uniform ones with probability ε, exactly.

The dynamic programme is that of `tales_messages.py`; a phrase fits the tokens where it stands by the product of
(1-ε) [token = word] + ε / V over its words.
"""

import torch
from torch import Tensor

from multimdm.data.tales_grammar import END, PAD
from multimdm.data.tales_messages import Factors, Messages
from multimdm.data.tales_plan import Part, Plan, SentencePlan


class Judge:
    """The dynamic programme for one ε."""

    def __init__(self, plan: Plan, epsilon: float) -> None:
        self.plan, self.messages = plan, Messages(plan)
        self.kept, self.noise = 1.0 - epsilon, epsilon / len(plan.vocabulary)
        self.outside = len(plan.vocabulary)
        """The id of the positions beyond the end of a sequence: no token stands there, nor a replaced one."""
        self._tables: dict[Part, Tensor] = {}

    def log_prob(self, ids: Tensor) -> Tensor:
        """log p of each row of ids [B, L]; the plan's longest story must fit into L."""
        story = torch.arange(len(ids))[:, None]

        def factors_from(sentence: SentencePlan, starts: Tensor) -> Factors:
            return self._factors(self.windows(ids, story, starts, sentence).flatten(0, 1))

        return self.messages.log_sum(factors_from, self._tail(ids))

    def well_formed(self, ids: Tensor, story: Tensor, start: Tensor) -> Tensor:
        """Whether a sentence at `start` of ids[story] is made by some template with some values, for ε = 0."""
        found = torch.zeros(len(story), dtype=torch.bool)
        for sentence in self.plan.sentences:
            prior = self.plan.joint(sentence.before)
            factors = self._factors(self.windows(ids, story, start, sentence))
            for _, (_, scale) in self.messages.step(sentence, factors, prior.expand(len(story), *prior.shape)):
                found |= scale > -torch.inf
        return found

    def windows(self, ids: Tensor, rows: Tensor, starts: Tensor, sentence: SentencePlan) -> Tensor:
        """The tokens from each start on, as many as the longest sentence has."""
        width = sentence.lengths[-1]
        padded = torch.nn.functional.pad(ids, (0, width), value=self.outside)
        return padded[rows[..., None], starts[..., None] + torch.arange(width)]

    def _factors(self, windows: Tensor) -> Factors:
        """Of the tokens [n, width] from each start on."""
        return lambda part, length, offset: self._factor(part, length, windows[:, offset : offset + length])

    def _factor(self, part: Part, length: int, tokens: Tensor) -> Tensor:
        """Σ over phrases of this length of p(phrase | value) ∏_j ((1-ε) [token_j = word_j] + ε / V): [n, values]."""
        if length == 1:
            return self._word_table(part)[tokens[:, 0]]
        chosen = [i for i, phrase in enumerate(part.phrases) if len(phrase) == length]
        match = (tokens[:, None] == part.padded[chosen, :length]).double() * self.kept + self.noise
        inside = (tokens != self.outside).all(-1, keepdim=True)
        return match.prod(-1) @ part.table[:, chosen].T * inside

    def _word_table(self, part: Part) -> Tensor:
        """[tokens, values]: the factor of the phrases of one word, for every token; none is outside the sequence."""
        if part not in self._tables:
            table = torch.zeros(self.outside + 1, len(part.table), dtype=torch.float64)
            for phrase, column in zip(part.phrases, part.table.T, strict=True):
                if len(phrase) == 1:
                    table[:-1] += self.noise * column
                    table[phrase[0]] += self.kept * column
            self._tables[part] = table
        return self._tables[part]

    def _tail(self, ids: Tensor) -> Tensor:
        """log p of the end marker at each position and padding from there to the end."""
        end, pad = (((ids == self.plan.index[word]).double() * self.kept + self.noise).log() for word in (END, PAD))
        return end + torch.nn.functional.pad(pad, (0, 1)).flip(1).cumsum(1).flip(1)[:, 1:]
