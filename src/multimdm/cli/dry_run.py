"""`--dry-run` of the commands that train: what a recipe would take, in place of training."""

from multimdm.training.estimate import Estimate, estimate
from multimdm.training.gpus import GPUS
from multimdm.training.outline import Start, Texts, outline, read_start
from multimdm.training.schema import PretrainRecipe, TrainingRecipe

UTILISATION = 0.35
"""Share of the peak that training is assumed to reach. An assumption: nothing here was measured on a GPU."""
_GIB = 2**30


def dry_run(recipe: TrainingRecipe, ranks: int, gpu: str | None, assumed: tuple[int, int] | None) -> str:
    """What the recipe would take on so many ranks."""
    if gpu is not None and gpu not in GPUS:
        raise ValueError(f"--gpu must be one of {', '.join(GPUS)}; got {gpu}")
    if ranks < 1:
        raise ValueError(f"--ranks must be at least 1; got {ranks}")
    start = None if isinstance(recipe, PretrainRecipe) else read_start(vars(recipe)["init"])
    texts = _texts(recipe, start, assumed)
    return describe(estimate(outline(recipe, texts, start), recipe.train, ranks), gpu)


def _texts(recipe: TrainingRecipe, start: Start | None, assumed: tuple[int, int] | None) -> Texts:
    """The texts of the data, if they are here; else as told, or as long as the network that is continued can take."""
    if assumed is not None:
        return Texts(*assumed)
    from multimdm.training.sources import open_source

    try:
        source = open_source(recipe.data, recipe.train.seed)
    except (ValueError, OSError) as error:
        if start is not None:
            return Texts(start.network.config.vocab_size, start.network.config.max_length)
        raise ValueError(
            f"{error}; for a dry run without the data, give their vocabulary and length: --assumed-texts 50257 1024"
        ) from None
    return Texts(source.tokenizer.vocab_size, source.length, source.begin_at_zero)


def describe(found: Estimate, gpu: str | None) -> str:
    """The estimate as a person reads it."""
    frozen = "" if found.trained == found.parameters else f", of which {found.trained:,} are trained"
    each = found.tokens // found.ranks
    lines = [
        f"{found.parameters:,} parameters{frozen}",
        f"{found.tokens:,} tokens per step on {_many(found.ranks, 'rank')}: {each:,} each, {found.micro_batch} "
        f"{'sequence' if found.micro_batch == 1 else 'sequences'} at once",
        "",
        f"memory per rank  {found.total / _GIB:8.2f} GiB",
        *(f"  {name:<24} {size / _GIB:6.2f}" for name, size in found.memory.items()),
        "  (counted for a step in which every position is active; what CUDA and its libraries take comes on top)",
        "",
        f"arithmetic       {found.flops:8.3g} FLOPs per step, {found.flops * found.steps:.3g} in all "
        f"{found.steps:,} steps",
    ]
    if gpu is not None:
        lines += ["", *_on(found, gpu)]
    return "\n".join(lines)


def _on(found: Estimate, name: str) -> list[str]:
    gpu = GPUS[name]
    step = found.flops / (found.ranks * gpu.flops * UTILISATION)
    room = gpu.memory * 1e9
    fits = (
        f"fits into {gpu.memory} GB with {(room - found.total) / _GIB:.1f} GiB to spare"
        if found.total < room
        else f"does not fit into {gpu.memory} GB: lower train.micro_batch, or try train.recompute, train.strategy fsdp"
    )
    return [
        f"on {_many(found.ranks, name)}: {fits}",
        f"  {step:.3g} s per step and {_hours(step * found.steps)} in all, validation and saving aside,",
        f"  if {UTILISATION:.0%} of {gpu.flops / 1e12:,.0f} TFLOP/s are reached, which is assumed and not measured",
    ]


def _many(number: int, name: str) -> str:
    return f"1 {name}" if number == 1 else f"{number} {name}s"


def _hours(seconds: float) -> str:
    if seconds < 3600:
        return f"{seconds / 60:.1f} minutes"
    return f"{seconds / 3600:.1f} hours" if seconds < 100 * 3600 else f"{seconds / 86400:.1f} days"
