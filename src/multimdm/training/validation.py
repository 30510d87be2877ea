"""The NELBO of a network in training, on a rank's share of the held-out sequences."""

from collections.abc import Iterable

from jaxtyping import Float64
from torch import Tensor

from multimdm.evaluation.nelbo import Nelbo, NelboSums, nelbo_sums
from multimdm.process import AnyProcess, Streams
from multimdm.training.engine import Engine
from multimdm.training.seeds import derive
from multimdm.training.sources import Source


def validation_sums(
    engine: Engine,
    process: AnyProcess | None,
    source: Source,
    parts: Iterable[tuple[range, bool]],
    times: Float64[Tensor, "draws sequences"],
) -> NelboSums:
    """Over the parts that count; the others are run in vain, as often as other ranks run theirs."""
    sums = NelboSums.none()
    for part, counted in parts:
        ids, valid = source.valid(part.start, len(part)).on(engine.device)
        streams = Streams.spawn(derive(0, "validation noise"), len(part), part.start)
        t, start_symbol = times[:, part.start : part.stop], engine.network.config.vocab_size
        added = nelbo_sums(engine.evaluated, process, ids, valid, t, streams, start_symbol)
        sums = sums + added if counted else sums
    return sums


def describe_nelbo(result: Nelbo, entropy: float | None) -> str:
    """In one line, beside the exact entropy where it is known."""
    if not result.bound:
        return (
            f"validation loss {result.total:.4f} ± {result.standard_error:.4f} nats/token, no bound of the likelihood"
        )
    text = f"validation NELBO {result.total:.4f} ± {result.standard_error:.4f} nats/token"
    if result.identification:
        text += f" ({result.reconstruction:.4f} + {result.identification:.4f})"
    text += f", perplexity {result.perplexity:.3f}"
    return text if entropy is None else f"{text}; the entropy is {entropy:.4f}"
