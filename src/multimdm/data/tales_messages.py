"""The sum over all derivations of a story grammar, given how well each phrase fits wherever it may stand.

Sentence by sentence, a message m_q(values) holds the weight of the first q tokens together with the values of the
variables that are alive after them. Given its template, a sentence is a product of one factor per variable,

    m_{q+ℓ}(kept, new) = p(new) Σ_T w_T ∏ F_T(kept) F_T(new) Σ_dropped m_q(kept, dropped) ∏ F_T(dropped),

so all templates of one length ℓ together are two batched matrix products, whatever the number of derivations. What is
seen of a story enters by the factors F alone: tokens, or evidence of them (`tales_inference.py`).

Numbers: every row (story, q) carries a logarithmic scale of its own. Two values in one row can lie far apart, but a
value that is k replaced tokens behind matters in the end only if the rest of the story can make up for them, so k is
at most half a story; within a step, a sentence more. `least_epsilon` keeps k log10(V / ε) within float64. The scales
are numbers without a gradient: whatever they are, they cancel.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from multimdm.data.tales_plan import Part, Plan, SentencePlan

Scaled = tuple[Tensor, Tensor]
"""Numbers x e^s: x, whose largest in each row is one (or all are zero), and s, one per row."""
Factors = Callable[[Part, int, int], Tensor]
"""(part, length, offset) -> [n, values]: Σ over the part's phrases of this length of p(phrase | value), times how well
each fits at this distance from each of n starts."""


def least_epsilon(plan: Plan) -> float:
    """The least ε > 0 at which nothing that counts underflows: k log10(V / ε) = 280 decades.

    The remaining 28 of float64 are for the probabilities of words.
    """
    k = plan.longest / 2 + max(sentence.lengths[-1] for sentence in plan.sentences)
    return len(plan.vocabulary) * 10.0 ** (-280 / k)


class Messages:
    """The dynamic programme of one grammar."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def log_sum(self, factors_from: Callable[[SentencePlan, Tensor], Factors], tail: Tensor) -> Tensor:
        """log of the sum over derivations [B]; `tail` [B, L] is the log-weight of an end at each position.

        `factors_from(sentence, starts)` gives the factors of all (story, start), in row-major order.
        """
        B = len(tail)
        message, scale = tail.new_ones((B, 1)), tail.new_zeros((B, 1))
        start = 0
        for sentence in self.plan.sentences:
            starts = torch.arange(start, start + scale.shape[1])
            step = self.step(sentence, factors_from(sentence, starts), message.flatten(0, 1))
            message, scale = _move(sentence, step, scale)
            start += sentence.lengths[0]
        ends = tail[:, start : start + scale.shape[1]]
        return torch.logsumexp(_log(message) + scale + ends, dim=1)

    def step(self, sentence: SentencePlan, factors: Factors, message: Tensor) -> Iterator[tuple[int, Scaled]]:
        """For each length ℓ, the message after the sentence if it takes ℓ tokens.

        message [n, *values before] -> ℓ, ([n, *values after], [n]).
        """
        known: dict[tuple[Part, int, int], Tensor] = {}
        for length in sentence.lengths:
            weights, by_variable = [], []
            for number, template in enumerate(sentence.templates):
                for lengths in template.alignments():
                    if sum(lengths) != length:
                        continue
                    found, offset = [], 0
                    for part, width in zip(template.parts, lengths, strict=True):
                        key = (part, width, offset)
                        if key not in known:
                            known[key] = factors(part, width, offset)
                        found.append((part.given, known[key]))
                        offset += width
                    found.append((sentence.given, sentence.weights[None, :, number]))
                    weight, variables = _collect(found, len(message))
                    weights.append(weight)
                    by_variable.append(variables)
            yield length, self._contract_possible(sentence, message, torch.stack(weights, dim=1), by_variable)

    def _contract_possible(
        self, sentence: SentencePlan, message: Tensor, weights: Tensor, by_variable: list[dict[str, Tensor]]
    ) -> Scaled:
        """The sum of `_contract`, computed only where some template fits: for ε = 0, at few places."""
        fits = (weights > 0).any(1)
        if bool(fits.all()):
            return self._contract(sentence, message, weights, by_variable)
        some = [{name: factor[fits] for name, factor in factors.items()} for factors in by_variable]
        values, scale = self._contract(sentence, message[fits], weights[fits], some)
        everywhere = values.new_zeros(len(fits), *values.shape[1:]), scale.new_full((len(fits),), -torch.inf)
        everywhere[0][fits], everywhere[1][fits] = values, scale
        return everywhere

    def _contract(
        self, sentence: SentencePlan, message: Tensor, weights: Tensor, by_variable: list[dict[str, Tensor]]
    ) -> Scaled:
        """Sum over templates and over the variables that end here: the formula at the head of this file."""
        plan, n = self.plan, len(message)
        needed = {*sentence.after, *(parent for name in sentence.new if (parent := plan.parents[name]) is not None)}
        held = tuple(name for name in sentence.before if name in needed)
        dropped = tuple(name for name in sentence.before if name not in needed)
        weights, largest = _split_largest(weights)
        weights = weights[:, None]

        def stacked(names: tuple[str, ...]) -> Tensor:
            """[n, values of all names, templates]: the products of their factors."""
            result = weights.new_ones(1, 1, 1)
            for name in names:
                ones = weights.new_ones(n, plan.size(name))
                one = torch.stack([factors.get(name, ones) for factors in by_variable], dim=-1)
                if name in sentence.new and plan.parents[name] is None:
                    one = one * plan.priors[name][0, :, None]
                result = (result[:, :, None] * one[:, None]).flatten(1, 2)
            return result

        order = [1 + sentence.before.index(name) for name in (*held, *dropped)]
        sizes = [math.prod(plan.size(name) for name in names) for names in (held, dropped)]
        old = message.permute(0, *order).reshape(n, *sizes)
        left, right = stacked(held) * weights, stacked(sentence.new).expand(n, -1, weights.shape[-1])
        out = (old @ stacked(dropped) * left) @ right.mT if dropped else old * (left @ right.mT)
        names = (*held, *sentence.new)
        out = out.reshape(n, *(plan.size(name) for name in names))
        for name in sentence.new:
            if (parent := plan.parents[name]) is not None:
                # A parent stands before its child, in the names as in the table of the prior.
                shape = [plan.size(other) if other in (parent, name) else 1 for other in names]
                out *= plan.priors[name].reshape(shape)
        ended = [1 + i for i, name in enumerate(names) if name not in sentence.after]
        values, then = _split_largest(out.sum(ended) if ended else out)
        return values, largest.log() + then.log()


def _collect(found: list[tuple[str | None, Tensor]], n: int) -> tuple[Tensor, dict[str, Tensor]]:
    """The product of factors [n or 1, values] as a weight [n] and, by variable, factors with a maximum of one.

    A plain product: one sentence alone does not leave the range of float64.
    """
    weight, variables = torch.ones(n, dtype=torch.float64), {}
    for name, factor in found:
        if name is None:
            weight = weight * factor[:, 0]
        else:
            variables[name] = variables[name] * factor if name in variables else factor.expand(n, -1)
    for name, factor in variables.items():
        variables[name], largest = _split_largest(factor)
        weight = weight * largest
    return weight, variables


def _split_largest(x: Tensor) -> tuple[Tensor, Tensor]:
    """x divided by the largest number of its row, and that number, without a gradient; rows of zeros stay."""
    largest = x.detach().reshape(len(x), math.prod(x.shape[1:])).amax(1)
    return x / torch.where(largest > 0, largest, 1.0).reshape(-1, *[1] * (x.ndim - 1)), largest


def _move(sentence: SentencePlan, step: Iterator[tuple[int, Scaled]], scale: Tensor) -> Scaled:
    """Add up what arrives at each position from all starts and lengths; positions count from the earliest."""
    B, starts = scale.shape
    shortest, longest = sentence.lengths[0], sentence.lengths[-1]
    sums: Tensor | None = None
    total = scale.new_full((B, starts + longest - shortest), -torch.inf)
    for length, (values, log_scale) in step:
        values = values.unflatten(0, (B, starts))
        if sums is None:
            sums = values.new_zeros(*total.shape, *values.shape[2:])
        here = slice(length - shortest, length - shortest + starts)
        arriving = log_scale.reshape(B, starts) + scale
        larger = torch.maximum(total[:, here], arriving)
        finite = torch.nan_to_num(larger, neginf=0.0)
        old, new = (
            torch.exp(part - finite).reshape(B, starts, *[1] * (values.ndim - 2)) for part in (total[:, here], arriving)
        )
        sums[:, here].mul_(old).addcmul_(values, new)
        total[:, here] = larger
    assert sums is not None  # a sentence has at least one length
    return sums, total


def _log(x: Tensor) -> Tensor:
    """log x, whose gradient is 0 where x is 0: a place that no derivation reaches has no say."""
    positive = x > 0
    return torch.where(positive, torch.where(positive, x, 1.0).log(), -torch.inf)
