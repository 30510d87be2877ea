"""The negative evidence lower bound of a model on given sequences, in nats per token, with its standard error.

For masks, tied to the text or not, the number of hidden positions is drawn instead of the time (`hidden_counts.py`): at
random times the estimate would have no finite variance, and no standard error would be worth its name.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from multimdm._checks import require
from multimdm.evaluation.held_out import Part, over_parts
from multimdm.evaluation.hidden_counts import noised
from multimdm.evaluation.progress import Progress, ignore
from multimdm.evaluation.real_text import RealText
from multimdm.objectives.base import Network, both, rows_on
from multimdm.objectives.candi import Candi
from multimdm.objectives.next_token import NextToken
from multimdm.pipeline import Model
from multimdm.process import AnyProcess, Hybrid, Streams


@dataclass(frozen=True)
class Nelbo:
    """An estimate: the mean over sequences and times; for an autoregressive model, the exact value."""

    reconstruction: float
    """Nats per token; of the one-step bound, the cross-entropy of the draft."""
    identification: float
    """Nats per token; zero but for multi-mask models. Of the one-step bound, what tokens say of their masks."""
    standard_error: float
    """The error of the total, as if sequences (and what was drawn for them) were independent. Times, or numbers of
    hidden positions, are spread evenly over them, so the true error is a little smaller."""
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
        """Both terms together, in nats per token."""
        return self.reconstruction + self.identification

    @property
    def perplexity(self) -> float:
        """exp(total): an upper bound of the model's perplexity."""
        return math.exp(min(self.total, 700.0))


@dataclass
class NelboSums:
    """What the estimate needs of any number of sequences; sums of parts (batches, ranks) can be added."""

    values: Float64[Tensor, "7"]
    """The sums of reconstruction, identification, total^2, total * tokens, tokens^2, tokens, and 1."""

    @staticmethod
    def none() -> "NelboSums":
        """The sums over no sequences."""
        return NelboSums(torch.zeros(7, dtype=torch.float64))

    @staticmethod
    def of(rec: Float64[Tensor, " B"], ident: Float64[Tensor, " B"], tokens: Float64[Tensor, " B"]) -> "NelboSums":
        """The sums over sequences with these two terms and numbers of tokens."""
        total = rec + ident
        columns = rec, ident, total**2, total * tokens, tokens**2, tokens, torch.ones_like(tokens)
        return NelboSums(torch.stack([column.sum() for column in columns]).cpu())

    @staticmethod
    def of_parts(parts: Sequence["NelboSums"]) -> "NelboSums":
        """The sums of all parts, added in their order."""
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
    if given is not None and (isinstance(process, Hybrid) or (process is not None and process.tied_noise)):
        raise ValueError(f"given tokens are for masks and uniform states with noise of their own; got {process!r}")
    counted = both(torch.ones_like(ids, dtype=torch.bool), valid)
    if given is not None:
        counted = counted & ~given.to(ids.device)
    if process is None:
        require(start_symbol is not None, "start_symbol must be given for a network without a process; got None")
        rec, ident = NextToken(start_symbol or 0).rows(ids, valid, counted).by_sequence(network)
    else:
        draws = [_draw(network, process, ids, valid, counted, row.to(ids.device), generator) for row in times]
        rec, ident = torch.stack(draws).mean(0)
    return NelboSums.of(rec, ident, (counted.sum(1) if tokens is None else tokens.to(rec.device)).double())


def _draw(
    network: Network,
    process: AnyProcess,
    ids: Int64[Tensor, "B L"],
    valid: Bool[Tensor, "B L"] | None,
    counted: Bool[Tensor, "B L"],
    spread: Float64[Tensor, " B"],
    generator: Streams,
) -> Float64[Tensor, "2 B"]:
    """Both terms per sequence, as they count in the bound, for one draw of noise.

    Where x_1 is kept, it is drawn like a sampler's, and the mean over x_1 of the bound of -log p(x_0 | x_1) bounds
    -log p(x_0) by Jensen's inequality. It is a loose bound: noise that is not the text's own leads elsewhere.
    """
    if isinstance(process, Hybrid):
        return Candi(process).rows(ids, valid, spread, generator).by_sequence(network)
    path = process.path_to_prior(ids.shape, generator, ids.device)
    state = noised(path, ids, counted, spread, generator)
    rows = rows_on(path, ids, state.x_t, state.t, state.positions, valid)
    return state.weight * rows.by_sequence(network)


def evaluate_nelbo(
    model: Model,
    text: RealText,
    sequences: int = 512,
    draws: int = 1,
    seed: int = 0,
    batch_size: int = 64,
    progress: Progress = ignore,
) -> Nelbo:
    """Nats per token with standard error; times evenly spread over the sequences, anew in each of the draws.

    The noise of a sequence is its own, so the batch size changes nothing. Of prompts and answers it is the bound for
    answers and their ends given the prompts, per token of an answer.
    """
    V = model.network.config.vocab_size

    def of(part: Part) -> NelboSums:
        streams = part.streams(seed)
        sums = nelbo_sums(
            model.network, model.process, part.ids, part.valid, part.times, streams, V, part.given, part.tokens
        )
        progress(len(part.ids) * draws)
        return sums

    found = over_parts(model, text, sequences, draws, seed, batch_size, of)
    return replace(NelboSums.of_parts(found).estimate(model.process), exact=model.process is None)
