"""The exact likelihood of a text under a sampler whose order of revealing is a function of the state (DUEL).

Let S_k be the positions that step k reveals. Where the state alone says which they are, a text has one path through
the sampler: the one on which every step reveals its own tokens. With U_k = S_1 u ... u S_k, the known positions, and
S_k = S(x^{U_{k-1}}),

    log p(x) = sum_k sum_{l in S_k} log p^theta_tau(x^l | x^{U_{k-1}}).

So the walk is the sampler's own, with the true tokens in place of drawn ones. (arXiv 2603.01367.) There must be one
mask, for several would say more than where they are; and the order must not depend on what is drawn: `confidence` with
remasking low_certainty, or `left_to_right` with threshold 1.
"""

from dataclasses import dataclass, replace
from typing import Literal, TypeGuard

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from multimdm._checks import require
from multimdm.evaluation.bootstrap import Bootstrap, Estimate
from multimdm.evaluation.held_out import Part, over_parts
from multimdm.evaluation.progress import Progress, ignore
from multimdm.evaluation.real_text import RealText, TalesText
from multimdm.pipeline import Model
from multimdm.process import AnyProcess, Process
from multimdm.process.places import exact
from multimdm.samplers.batch import Batch, Network
from multimdm.samplers.choice import Choice
from multimdm.samplers.confidence import Confidence
from multimdm.samplers.left_to_right import LeftToRight
from multimdm.samplers.loop import Step
from multimdm.samplers.process_checks import refuse_tied
from multimdm.samplers.question import Hypotheses

StateOrder = Literal["confidence", "left_to_right"]
"""Orders that a state alone can tell: the most certain predictions first, or from left to right."""


@dataclass(frozen=True)
class SamplerLikelihood:
    """How probable held-out text is under a sampler, exactly."""

    order: StateOrder
    steps: int
    temperature: float
    nats: Estimate
    """-log p per token; the interval is over sequences."""
    sequences: int
    tokens: int
    source: float | None = None
    """On Tales, -log p per token of the same texts under the source itself, which no sampler can beat on average."""


def evaluate_sampler_likelihood(
    model: Model,
    text: RealText,
    order: StateOrder,
    steps: int,
    temperature: float | int = 1.0,
    sequences: int = 512,
    batch_size: int = 64,
    progress: Progress = ignore,
) -> SamplerLikelihood:
    """How probable held-out text is when it is made by K steps at this temperature."""
    step = state_step(order, steps, temperature)
    process = model.process
    if not has_sampler_likelihood(process):
        raise ValueError(f"an exact likelihood needs one mask that is not tied; got {process!r}")
    source_text = text if isinstance(text, TalesText) else None

    def of(part: Part) -> tuple[Tensor, Tensor, Tensor]:
        nats = -sampler_log_likelihood(model.network, process, step, part.ids, part.given, part.valid).cpu()
        source = torch.zeros_like(nats) if source_text is None else -source_text.log_prob(part.ids.cpu())
        progress(len(part.ids) * steps)
        return nats, part.tokens.cpu(), source

    found = over_parts(model, text, sequences, 1, 0, batch_size, of)
    nats, count, source = (torch.cat(each) for each in zip(*found, strict=True))
    estimate = Bootstrap(len(nats)).ratio(nats, count.double())
    tokens = int(count.sum())
    of_source = None if source_text is None else float(source.sum()) / tokens
    return SamplerLikelihood(order, steps, float(temperature), estimate, len(nats), tokens, of_source)


def state_step(order: StateOrder, steps: int, temperature: float | int) -> Confidence | LeftToRight:
    """The step of such a sampler."""
    require(temperature > 0, f"temperature must be above 0: at 0 a sampler makes one text only; got {temperature}")
    choice = Choice(temperature)
    return (
        LeftToRight(steps, choice, threshold=1)
        if order == "left_to_right"
        else Confidence(steps, choice, remasking="low_certainty")
    )


def has_sampler_likelihood(process: AnyProcess | None) -> TypeGuard[Process]:
    """Whether samplers of the process can have one: it must have one mask, whose x_1 is not kept."""
    return isinstance(process, Process) and process.num_masks == 1 and not process.tied_noise


@torch.no_grad()
def sampler_log_likelihood(
    network: Network,
    process: Process,
    step: Step,
    ids: Int64[Tensor, "B L"],
    given: Bool[Tensor, "B L"] | None = None,
    valid: Bool[Tensor, "B L"] | None = None,
) -> Float64[Tensor, " B"]:
    """log p(x) in nats of what is not `given`, under the sampler that makes steps of this kind; -inf if it cannot."""
    step = _ordered_by_state(process, step)
    free = torch.ones_like(ids, dtype=torch.bool) if given is None else ~given
    free = free if valid is None else free & valid
    total = torch.zeros(len(ids), dtype=torch.float64, device=ids.device)
    hidden = torch.where(free, process.vocab_size, ids)
    batch, truth, place = Batch(hidden, free, valid), ids, torch.arange(len(ids), device=ids.device)
    for k in range(step.num_steps):
        going = (process.active(batch.x) & batch.free).any(1)
        batch, truth, place = batch.rows(going), truth[going], place[going]
        if len(place) == 0:
            break
        x, gained = _forced(network, process, step, batch, truth, k)
        total[place] += gained
        batch = replace(batch, x=x)
    return total


def _forced(
    network: Network, process: Process, step: Confidence | LeftToRight, batch: Batch, truth: Tensor, k: int
) -> tuple[Int64[Tensor, "B L"], Float64[Tensor, " B"]]:
    """Step k with the true tokens for hypotheses: the next states, and the log-probability of what was revealed."""
    question = step.question(process, batch, k)
    candidates = question.positions
    true = truth[candidates]

    def reduce(logits: Tensor, rows: slice) -> tuple[Tensor, ...]:
        weights = exact(step.choice.weights(logits))
        share = weights.gather(-1, true[rows, None])[:, 0] / weights.sum(-1)
        return question.sureness(step.choice.allowed(logits), true[rows]), share.log()

    sure, log_probs = network(batch.x, question.t, positions=candidates, valid=batch.valid, reduce=reduce)
    confidence = torch.zeros(truth.shape, dtype=sure.dtype, device=sure.device).masked_scatter(candidates, sure)
    moved = step.move(question, Hypotheses(truth, confidence), k)
    revealed = candidates & ~process.active(moved.x)
    each = torch.zeros(truth.shape, dtype=torch.float64, device=sure.device).masked_scatter(candidates, log_probs)
    return moved.x, torch.where(revealed, each, 0.0).sum(1)


def _ordered_by_state(process: Process, step: Step) -> Confidence | LeftToRight:
    """The step if it has an exact likelihood with this process."""
    require(
        process.num_masks == 1,
        f"a sampler has an exact likelihood with one mask, which tells nothing of the token; got {process!r}",
    )
    refuse_tied(process, "an exact likelihood")
    by_certainty = isinstance(step, Confidence) and step.peak and not step.guidance
    require(
        by_certainty or (isinstance(step, LeftToRight) and step.threshold == 1),
        "a sampler has an exact likelihood if its order does not depend on what is drawn: order='confidence' with "
        f"remasking='low_certainty' and without guidance, or order='left_to_right' with threshold=1; got {step!r}",
    )
    assert isinstance(step, Confidence | LeftToRight)
    return step
