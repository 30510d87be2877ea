"""The NELBO of a network in training, on a rank's share of the held-out sequences."""

from collections.abc import Iterable

from jaxtyping import Float64
from torch import Tensor

from multimdm.data.prepared import Example
from multimdm.evaluation.nelbo import Nelbo, NelboSums, nelbo_sums
from multimdm.evaluation.one_step import one_step_sums
from multimdm.evaluation.teachers.base import cells_of_text
from multimdm.process import AnyProcess, MultiMask, Streams
from multimdm.training.engine import Engine
from multimdm.training.quantile_pairs import Quantiles
from multimdm.training.seeds import derive
from multimdm.training.sources import Source


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
            added = one_step_sums(engine.evaluated, process, ids, valid, cells, streams, len(times))
        else:
            t, start_symbol = times[:, part.start : part.stop], engine.network.config.vocab_size
            added = nelbo_sums(
                engine.evaluated, process, ids, valid, t, streams, start_symbol, *_answers(source, example, part)
            )
        sums = sums + added if counted else sums
    return sums


def _answers(source: Source, example: Example, part: range) -> tuple[Tensor | None, Tensor | None]:
    """Of pairs: the prompts, and the number of tokens of each answer, with its end but without what follows that."""
    if example.given is None:
        return None, None
    return example.given, source.valid_text(part.start, len(part)).sum(1)


def describe_nelbo(result: Nelbo, entropy: float | None) -> str:
    """In one line, beside the exact entropy where it is known."""
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
