"""What a run opens with: the network, the data that the budget means, the device, and what will not be validated."""

from multimdm.pipeline import Model
from multimdm.pipeline.description import kind_of, size_of
from multimdm.training.engine import Engine
from multimdm.training.schema import TrainingRecipe
from multimdm.training.sources import PreparedSource, Source, TalesSource


def header(
    name: str, model: Model, source: Source, recipe: TrainingRecipe, engine: Engine, validated: int
) -> list[str]:
    """In lines. `validated` is the number of held-out sequences that are used."""
    trained, every = (sum(x.numel() for x in weights) for weights in (engine.weights, engine.network.parameters()))
    some = "" if trained == every else f", of which {trained / 1e6:,.2f} million are trained"
    lines = [
        f"{name}: {kind_of(model.process)}; {size_of(engine.network)}{some}",
        f"{name}: {_data(source, recipe)}",
        f"{name}: on {_device(engine)}, in {'bfloat16' if engine.bfloat16 else 'float32'}",
    ]
    if validated == 0:
        lines.append(f"{name}: nothing will be validated: {_why(source, recipe)}")
    return lines


def _data(source: Source, recipe: TrainingRecipe) -> str:
    """What there is, and how much of it the budget takes."""
    train, L = recipe.train, source.length
    sequences = train.steps * train.batch_size
    meant = f"{_count(sequences)} texts, {_count(sequences * L)} tokens"
    budget = f"{train.steps:,} steps of {train.batch_size:,} are {meant}"
    if isinstance(source, TalesSource):
        return f"Tales, new stories of {L} tokens without end; {budget}"
    if isinstance(source, PreparedSource):
        counts = source.training.manifest.counts
        there = f"{counts.sequences:,} texts of {L:,} tokens, {_count(counts.tokens)} without padding"
        return f"{recipe.data.path}, {there}; {budget}, {number_of(sequences / counts.sequences)} epochs"
    return f"no data: a teacher writes all texts, of {L:,} tokens; {budget}"


def number_of(epochs: float) -> str:
    """With three digits, or as many as a large number has."""
    return f"{epochs:.3g}" if epochs < 1000 else f"{epochs:,.0f}"


def _device(engine: Engine) -> str:
    return str(engine.device) if engine.ranks == 1 else f"{engine.ranks} ranks, {engine.device.type}"


def _why(source: Source, recipe: TrainingRecipe) -> str:
    if not isinstance(source, PreparedSource):
        return "there are no data"
    return (
        f"{recipe.data.path} has no held-out text (multimdm prepare --valid-fraction 0.02 keeps some, --data.valid "
        "names other data)"
    )


def _count(number: int) -> str:
    """Three digits of what is large."""
    for size, word in ((10**9, "billion"), (10**6, "million")):
        if number >= size:
            return f"{number / size:.3g} {word}"
    return f"{number:,}"
