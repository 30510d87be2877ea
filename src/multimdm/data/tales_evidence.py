"""p(x^l | evidence) of a story grammar whose tokens are replaced by uniform ones with probability ε, exactly.

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
