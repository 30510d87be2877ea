"""The negative evidence lower bound of a model on given sequences, in nats per token, with its standard error.

For masks, tied to the text or not, the number of hidden positions is drawn instead of the time (`hidden_counts.py`): at
random times the estimate would have no finite variance, and no standard error would be worth its name.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from multimdm._checks import require
from multimdm.evaluation.hidden_counts import draw_hidden, hide
from multimdm.objectives.base import Network, both
from multimdm.objectives.next_token import shift_right
from multimdm.objectives.times import stratified_times
from multimdm.process import AnyProcess, Hybrid, MultiMask, Process, Streams
from multimdm.process.cross_entropy import cross_entropy


@dataclass(frozen=True)
class Nelbo:
    """An estimate: the mean over sequences and times; for an autoregressive model, the exact value."""

    reconstruction: float
    """Nats per token; of the one-step bound, the cross-entropy of the draft."""
    identification: float
    """Nats per token; zero but for multi-mask models. Of the one-step bound, what tokens say of their masks."""
    standard_error: float
    """Of the total, over sequences (and what was drawn for them), taken for independent; times or numbers of hidden
    positions are spread evenly over sequences, so the true one is a little smaller."""
    sequences: int
    tokens: int
    one_step: bool = False
    """Whether it bounds -log p of a text that is written in one step from quantile noise (`one_step.py`)."""
    exact: bool = False
    """Whether it is the negative log-likelihood itself: of an autoregressive model."""
    bound: bool = True
    """Whether it bounds the negative log-likelihood; CANDI's loss, which leaves the Gaussian part out, does not."""

    @property
    def total(self) -> float:
        """Nats per token."""
        return self.reconstruction + self.identification

    @property
    def perplexity(self) -> float:
        """exp(total): an upper bound of the model's perplexity."""
        return math.exp(min(self.total, 700.0))


@dataclass
class NelboSums:
    """What the estimate needs of any number of sequences; sums of parts (batches, ranks) can be added."""

    values: Float64[Tensor, "7"]
    """Of reconstruction, identification, total^2, total * tokens, tokens^2, tokens, and 1."""

    @staticmethod
    def none() -> "NelboSums":
        """Of no sequences."""
        return NelboSums(torch.zeros(7, dtype=torch.float64))

    @staticmethod
    def of(rec: Float64[Tensor, " B"], ident: Float64[Tensor, " B"], tokens: Float64[Tensor, " B"]) -> "NelboSums":
        """Of sequences with these two terms and numbers of tokens."""
        total = rec + ident
        columns = rec, ident, total**2, total * tokens, tokens**2, tokens, torch.ones_like(tokens)
        return NelboSums(torch.stack([column.sum() for column in columns]).cpu())

    @staticmethod
    def of_parts(parts: Sequence["NelboSums"]) -> "NelboSums":
        """Added in their order."""
        return sum(parts, NelboSums.none())

    def __add__(self, other: "NelboSums") -> "NelboSums":
        return NelboSums(self.values + other.values)

    def estimate(self, process: AnyProcess | None = None) -> Nelbo:
        """The ratio of the sums, for a model of this process; its error by the usual expansion of a ratio of means."""
        rec, ident, squares, cross, tokens_squared, tokens, n = self.values.tolist()
        ratio = (rec + ident) / tokens
        residuals = squares - 2 * ratio * cross + ratio**2 * tokens_squared
        error = math.sqrt(max(residuals, 0.0) * n / max(n - 1, 1)) / tokens
        bound = not isinstance(process, Hybrid)
        return Nelbo(rec / tokens, ident / tokens, error, int(n), int(tokens), bound=bound)


@torch.no_grad()
def nelbo_sums(
    network: Network,
    process: AnyProcess | None,
    ids: Int64[Tensor, "B L"],
    valid: Bool[Tensor, "B L"] | None,
    times: Float64[Tensor, "draws B"],
    generator: Streams,
    start_symbol: int | None = None,
    given: Bool[Tensor, "B L"] | None = None,
    tokens: Int64[Tensor, " B"] | None = None,
) -> NelboSums:
    """Sums over a batch, each sequence noised once for every row of `times`: numbers in (0, 1), which are the times
    themselves or, for masks, stand for how many positions are hidden.

    For a causal network `process` is None, nothing is random, and `start_symbol` is what it is shown first. What is
    `given` is never noised, and the sums bound -log p of the rest given it. Figures are per token that counts, or per
    token of as many in each sequence as `tokens` says.
    """
    if given is not None and (isinstance(process, Hybrid) or (isinstance(process, MultiMask) and process.tied_noise)):
        raise ValueError(f"given tokens are for masks and uniform states with noise of their own; got {process!r}")
    counted = _counted(ids, valid, None if given is None else given.to(ids.device))
    if process is None:
        require(start_symbol is not None, "start_symbol must be given for a network without a process; got None")
        rec, ident = _next_token_loss(network, ids, valid, counted, start_symbol or 0)
    elif isinstance(process, Hybrid):
        rec, ident = torch.stack([_hybrid_loss(network, process, ids, valid, t, generator) for t in times]).mean(0)
    elif isinstance(process, MultiMask) and process.tied_noise:
        rec, ident = torch.stack([_tied_loss(network, process, ids, valid, t, generator) for t in times]).mean(0)
    elif isinstance(process, MultiMask):
        rec, ident = torch.stack(
            [_masked_loss(network, process, ids, valid, counted, t, generator) for t in times]
        ).mean(0)
    else:
        rec, ident = torch.stack([_loss(network, process, ids, valid, counted, t, generator) for t in times]).mean(0)
    return NelboSums.of(rec, ident, (counted.sum(1) if tokens is None else tokens.to(rec.device)).double())


def validation_times(sequences: int, draws: int, seed: int) -> Float64[Tensor, "draws sequences"]:
    """Numbers in (0, 1) for all sequences of a validation set, evenly spread in every draw; equal for equal seeds."""
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([stratified_times(sequences, generator) for _ in range(draws)])


def _loss(
    network: Network,
    process: Process,
    ids: Tensor,
    valid: Tensor | None,
    counted: Tensor,
    t: Tensor,
    generator: Streams,
) -> Float64[Tensor, "2 B"]:
    """Both terms per sequence, summed over its positions; padding, which is not looked at, and prompts stay clean."""
    t = t.to(ids.device)
    x_t = torch.where(counted, process.corrupt(ids, t, generator), ids)
    return loss_at(network, process, ids, valid, x_t, x_t, t, counted)


def _masked_loss(
    network: Network,
    process: MultiMask,
    ids: Tensor,
    valid: Tensor | None,
    counted: Tensor,
    spread: Tensor,
    generator: Streams,
) -> Float64[Tensor, "2 B"]:
    """Both terms per sequence, as they count in the bound."""
    hidden = draw_hidden(process, counted, spread.to(ids.device), generator)
    x_t = hide(process, ids, hidden, generator)
    return hidden.weight * loss_at(network, process, ids, valid, x_t, x_t, hidden.t)


def loss_at(
    network: Network,
    process: Process,
    ids: Tensor,
    valid: Tensor | None,
    x_t: Tensor,
    shown: Tensor,
    t: Tensor,
    counted: Tensor | None = None,
) -> Float64[Tensor, "2 B"]:
    """Both terms per sequence in the states x_t, for what the network predicts if it is shown these or others.

    What counts is all but padding, unless another choice is given.
    """
    active = both(process.active(x_t), valid if counted is None else counted)
    clean, state, time = ids[active], x_t[active], t[:, None].expand(ids.shape)[active]

    def reduce(logits: Tensor, rows: slice) -> Tensor:
        terms = process.logit_loss(logits, clean[rows], state[rows], time[rows])
        return torch.stack([terms.reconstruction, terms.identification], dim=1)

    return _per_sequence(network(shown, t, active, valid, reduce), active)


def _tied_loss(
    network: Network, process: MultiMask, ids: Tensor, valid: Tensor | None, spread: Tensor, generator: Streams
) -> Float64[Tensor, "2 B"]:
    """Both terms of -log p(x_0 | x_1) per sequence, as they count in the bound, for x_1 drawn like a sampler's.

    The mean over x_1 bounds -log p(x_0) by Jensen's inequality. It is a loose bound: noise that is not the text's own
    leads elsewhere.
    """
    path = process.path_to_prior(ids.shape, generator, ids.device)
    hidden = draw_hidden(process, _counted(ids, valid), spread.to(ids.device), generator)
    t, active = hidden.t, hidden.positions
    x_t = torch.where(active, path.masks_of(ids, t, generator), ids)
    clean, state, time, packed = ids[active], x_t[active], t[:, None].expand(ids.shape)[active], path.at(active)

    def reduce(logits: Tensor, rows: slice) -> Tensor:
        terms = packed.at(rows).loss(logits, clean[rows], state[rows], time[rows])
        return torch.stack([terms.reconstruction, terms.identification], dim=1)

    sums = _per_sequence(network(path.shown(x_t), t, active, valid, reduce), active)
    return hidden.weight * sums


def _hybrid_loss(
    network: Network, process: Hybrid, ids: Tensor, valid: Tensor | None, t: Tensor, generator: Streams
) -> Float64[Tensor, "2 B"]:
    """The loss of CANDI per sequence, and zeros."""
    t = t.to(ids.device)
    x_t = process.corrupt(ids, t, generator)
    hidden = both(process.hidden(x_t), valid)
    clean, time = ids[hidden], t[:, None].expand(ids.shape)[hidden]

    def reduce(logits: Tensor, rows: slice) -> Tensor:
        loss = process.logit_loss(logits, clean[rows], time[rows])
        return torch.stack([loss, torch.zeros_like(loss)], dim=1)

    return _per_sequence(network(process.shown(x_t, t), t, hidden, valid, reduce), hidden)


def _next_token_loss(
    network: Network, ids: Tensor, valid: Tensor | None, counted: Tensor, start: int
) -> Float64[Tensor, "2 B"]:
    clean = ids[counted]

    def reduce(logits: Tensor, rows: slice) -> Tensor:
        loss = cross_entropy(logits, clean[rows], "none")
        return torch.stack([loss, torch.zeros_like(loss)], dim=1)

    return _per_sequence(network(shift_right(ids, start), None, counted, valid, reduce), counted)


def _counted(ids: Tensor, valid: Tensor | None, given: Tensor | None = None) -> Bool[Tensor, "B L"]:
    """Everything but padding and what is given."""
    return both(both(torch.ones_like(ids, dtype=torch.bool), valid), None if given is None else ~given)


def _per_sequence(terms: Tensor, counted: Tensor) -> Float64[Tensor, "2 B"]:
    """Sums of the packed rows of each sequence."""
    sequence = torch.arange(len(counted), device=terms.device)[:, None].expand(counted.shape)[counted]
    return terms.new_zeros((len(counted), 2), dtype=torch.float64).index_add(0, sequence, terms.double()).T
