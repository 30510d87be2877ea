"""The NELBO of a network in training, on held-out sequences."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from jaxtyping import Float64
from torch import Tensor

from multimdm.data.prepared import Example
from multimdm.evaluation.held_out import validation_times
from multimdm.evaluation.nelbo import Nelbo, NelboSums, nelbo_sums
from multimdm.evaluation.one_step import OneStep
from multimdm.evaluation.teachers.base import cells_of_text
from multimdm.process import AnyProcess, MultiMask, Streams
from multimdm.training.engine import Engine
from multimdm.training.job import Job
from multimdm.training.quantile_pairs import Quantiles
from multimdm.training.records import loss_key
from multimdm.training.sources import Source
from multimdm.training.step_plan import Parts, derive


def validation_size(source: Source, most: int, ranks: int) -> int:
    """How many held-out sequences are used; 0 if there are none."""
    size = most if source.valid_size is None else min(most, source.valid_size)
    if 0 < size < ranks:
        raise ValueError(f"there must be a validation sequence for each of {ranks} ranks; got {size}")
    return size


def validate(engine: Engine, job: Job, parts: Parts, size: int, draws: int) -> Nelbo:
    """The NELBO of the weights that the network has now, on held-out sequences that are shared out among ranks."""
    times = validation_times(size, draws, seed=derive(0, "validation times"))
    process, quantiles = job.model.process, job.quantiles
    sums = validation_sums(engine, process, job.source, parts.of(size), times, quantiles)
    result = NelboSums(engine.sum(sums.values)).estimate(process)
    return replace(result, one_step=quantiles is not None, exact=process is None)


def nelbo_record(result: Nelbo, entropy: float | None) -> dict[str, Any]:
    """What is written down of a validation, beside the exact entropy where it is known."""
    return {
        loss_key(result): result.total,
        "reconstruction": result.reconstruction,
        "identification": result.identification,
        "standard_error": result.standard_error,
        "perplexity": result.perplexity,
        "bound": result.bound,
        "one_step": result.one_step,
        "sequences": result.sequences,
        **({"entropy": entropy} if entropy is not None else {}),
    }


def validation_sums(
    engine: Engine,
    process: AnyProcess | None,
    source: Source,
    parts: Iterable[tuple[range, bool]],
    times: Float64[Tensor, "draws sequences"],
    quantiles: Quantiles | None = None,
) -> NelboSums:
    """Over the parts that count; the others are run in vain, as often as other ranks run theirs.

    With quantile noise, of the bound for one step (`evaluation/one_step.py`).
    """
    sums = NelboSums.none()
    for part, counted in parts:
        example = source.valid(part.start, len(part))
        ids, valid = example.on(engine.home)
        streams = Streams.spawn(derive(0, "validation noise"), len(part), part.start)
        if quantiles is not None:
            assert isinstance(process, MultiMask)
            text = source.valid_text(part.start, len(part))
            cells = cells_of_text(quantiles.teacher, example.ids, text, quantiles.order)
            added = OneStep(engine.evaluated, process, ids, valid).bound(cells, streams, len(times))
        else:
            t, start_symbol = times[:, part.start : part.stop], engine.network.config.vocab_size
            added = nelbo_sums(
                engine.evaluated, process, ids, valid, t, streams, start_symbol, *_answers(source, example, part)
            )
        sums = sums + added if counted else sums
    return sums


def _answers(source: Source, example: Example, part: range) -> tuple[Tensor | None, Tensor | None]:
    """The prompts of pairs, and the number of tokens of each answer: its end counts, what follows does not."""
    if example.given is None:
        return None, None
    return example.given, source.valid_text(part.start, len(part)).sum(1)


def describe_nelbo(result: Nelbo, entropy: float | None) -> str:
    """The NELBO in one line, beside the exact entropy where it is known."""
    if not result.bound:
        return (
            f"validation loss {result.total:.4f} ± {result.standard_error:.4f} nats/token, no bound of the likelihood"
        )
    if result.one_step:
        return (
            f"validation, one step: {result.total:.4f} ± {result.standard_error:.4f} nats/token at most "
            f"({result.reconstruction:.4f} of the draft + {result.identification:.4f} of the numbers)"
            + ("" if entropy is None else f"; the entropy is {entropy:.4f}")
        )
    name = "negative log-likelihood" if result.exact else "NELBO"
    text = f"validation {name} {result.total:.4f} ± {result.standard_error:.4f} nats/token"
    if result.identification:
        text += f" ({result.reconstruction:.4f} + {result.identification:.4f})"
    text += f", perplexity {result.perplexity:.3f}"
    return text if entropy is None else f"{text}; the entropy is {entropy:.4f}"
