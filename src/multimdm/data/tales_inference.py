"""What is seen of a story, for a grammar whose tokens are replaced by uniform ones with probability ε: exact sums.

The dynamic programme is that of `tales_messages.py`. `Judge` gives log p(tokens): a phrase fits the tokens where it
stands by the product of (1-ε) [token = word] + ε / V over its words. `Inference` gives p(x^l | evidence).

Evidence says of every position l and token a how probable what was seen there is if the token is a, up to a factor:
E^l(a). Tokens that are known are a special case. For the words w before replacement it is
e^l(w) = (1-ε) E^l(w) + ε mean_a E^l(a), and the sum over all derivations (`tales_messages.py`),

    Z(E) = Σ_x p(x) ∏_l E^l(x^l),

is linear in the evidence of each position. So the derivative ∂Z / ∂E^l(a) is p(x^l = a) together with the evidence at
all *other* positions: the leave-one-out distribution, up to a factor, and times E^l(a) the posterior. One pass backward
gives it at all positions.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float64
from torch import Tensor
from torch.nn import functional as F

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
        padded = F.pad(ids, (0, width), value=self.outside)
        return padded[rows[..., None], starts[..., None] + torch.arange(width)]

    def _factors(self, windows: Tensor) -> Factors:
        """The factors of the tokens [n, width] from each start on."""
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
        return end + F.pad(pad, (0, 1)).flip(1).cumsum(1).flip(1)[:, 1:]


class Inference:
    """What evidence tells of the tokens, for one ε > 0: no evidence is then impossible."""

    def __init__(self, plan: Plan, epsilon: float) -> None:
        self.plan, self.epsilon, self.messages = plan, epsilon, Messages(plan)
        self._parts = {part: None for sentence in plan.sentences for t in sentence.templates for part in t.parts}
        self._width = max(sentence.lengths[-1] for sentence in plan.sentences)
        self._words = torch.cat([_word_table(part, len(plan.vocabulary)) for part in self._parts], dim=1)
        """[V, values of all parts]: p(phrase | value) of the phrases of one word."""

    def leave_one_out(self, evidence: Float64[Tensor, "B L V"]) -> Float64[Tensor, "B L V"]:
        """log p(x^l = a | evidence at all positions but l); the plan's longest story must fit into L."""
        scaled = (evidence / evidence.amax(-1, keepdim=True)).detach()
        with torch.enable_grad():
            scaled.requires_grad_(True)
            (slope,) = torch.autograd.grad(self.log_sum(scaled).sum(), scaled)
        return (slope / slope.sum(-1, keepdim=True)).log()

    def log_sum(self, evidence: Float64[Tensor, "B L V"]) -> Float64[Tensor, " B"]:
        """log Z(E)."""
        e = (1 - self.epsilon) * evidence + self.epsilon * evidence.mean(-1, keepdim=True)
        fits = self._fits(e)

        def factors_from(sentence: SentencePlan, starts: Tensor) -> Factors:
            first, num = int(starts[0]), len(starts)
            return lambda part, length, offset: fits(part, length)[:, first + offset :][:, :num].flatten(0, 1)

        return self.messages.log_sum(factors_from, self._tail(e))

    def _fits(self, e: Tensor) -> Callable[[Part, int], Tensor]:
        """(part, length) -> [B, L + width, values]: the factor of the phrases that begin at each position.

        Nothing is seen beyond the end, and no word stands there.
        """
        beyond = F.pad(e, (0, 0, 0, self._width))
        sizes = [len(part.table) for part in self._parts]
        known = dict(zip(((part, 1) for part in self._parts), (beyond @ self._words).split(sizes, -1), strict=True))

        def fits(part: Part, length: int) -> Tensor:
            if (part, length) not in known:
                known[part, length] = _phrases(part, length, beyond)
            return known[part, length]

        return fits

    def _tail(self, e: Tensor) -> Tensor:
        """log-weight of the end marker at each position and padding from there to the end."""
        end, pad = (e[..., self.plan.index[word]].log() for word in (END, PAD))
        return end + F.pad(pad, (0, 1)).flip(1).cumsum(1).flip(1)[:, 1:]


def _word_table(part: Part, vocab_size: int) -> Float64[Tensor, "V values"]:
    """p(phrase | value) of the phrases of one word, by that word."""
    table = torch.zeros(vocab_size, len(part.table), dtype=torch.float64)
    for phrase, column in zip(part.phrases, part.table.T, strict=True):
        if len(phrase) == 1:
            table[phrase[0]] += column
    return table


def _phrases(part: Part, length: int, e: Float64[Tensor, "B places V"]) -> Float64[Tensor, "B places values"]:
    """Σ over phrases of this length of p(phrase | value) ∏_j e^{l+j}(word_j), wherever a phrase may begin."""
    chosen = [i for i, phrase in enumerate(part.phrases) if len(phrase) == length]
    words, places = part.padded[chosen, :length], e.shape[1] - length + 1
    match = e[:, :places, words[:, 0]]
    for j in range(1, length):
        match = match * e[:, j : j + places, words[:, j]]
    return F.pad(match @ part.table[:, chosen].T, (0, 0, 0, length - 1))
