"""A scale: a corpus, its judges, and how each named model is trained there. Specifications choose among its models."""

from collections.abc import Mapping
from dataclasses import dataclass as plain
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic.dataclasses import dataclass

from multimdm._hints import hint
from multimdm.training.recipes import parse_recipe, read_yaml
from multimdm.training.settings import STRICT, NonNegative, Positive, PositiveFloat, TrainSettings
from multimdm.training.shipped import find_file

Command = Literal["pretrain", "adapt", "distill", "couple"]
NO_NETWORKS = ("tales", "none")
"""What may stand for a judge and is no network."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Preparation:
    """How a text file of the user's becomes data, as `multimdm prepare` does it."""

    tokenizer: str = "bpe:4096"
    length: Positive = 32
    layout: Literal["packed", "padded"] = "padded"
    valid_fraction: PositiveFloat = 0.02


@dataclass(frozen=True, config=STRICT, kw_only=True)
class ScaleSettings:
    """What all specifications share at this scale."""

    about: str
    """What the scale is for, in a line."""
    data: str | None = None
    """`tales`, or a directory that `multimdm prepare` wrote; without it, `prepare` says how --text becomes one."""
    prepare: Preparation | None = None
    judges: tuple[str, ...]
    """Judges, as for `multimdm evaluate --judge`; the name of a model of this scale is that model, trained here."""
    steps: tuple[Positive, ...]
    """The numbers of steps K."""
    temperatures: tuple[PositiveFloat, ...] = (1.0,)
    """The points of the perplexity-entropy curves; 1 is among them."""
    samples: Positive = 128
    """Samples per measurement, as in the paper."""
    batch_size: Positive = 64
    """Samples that go through a network together. Ranks share out such parts: there should be one for each."""
    mauve: str | None = None
    """The network in whose features samples are compared with held-out text, named as judges are; without it they are
    not."""
    recall_strings: NonNegative = 2048
    """Noise strings of the recall of held-out text in one step; 0 leaves it out."""
    absent: dict[str, str] = field(default_factory=dict)
    """Models that specifications name and that are left out at this scale -> why."""
    set: dict[str, Any] = field(default_factory=dict)
    """Key of a recipe -> its value for all models of this scale that do not set it themselves."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Entry:
    """How a model is trained, as a scale file says it."""

    command: Command | None = None
    recipe: str | None = None
    """The name of a recipe."""
    start: str | None = None
    """The model that it continues, or distils; without it, what the recipe's own init names."""
    like: str | None = None
    """Another model, from which all comes that is not said here; if nothing else is said, it is that very model."""
    set: dict[str, Any] = field(default_factory=dict)
    """Key of the recipe (train.steps) -> another value."""
    says: str | None = None
    """What it is, in a line, for who watches its training."""
    cost: PositiveFloat | None = None
    """What a step takes beside a step of other models, for the estimate of the time left; 1 unless given."""


@plain(frozen=True)
class Run:
    """How a model is trained, all said."""

    name: str
    command: Command
    recipe: str
    start: str | None
    set: Mapping[str, Any]
    says: str | None = None
    cost: float = 1.0


@plain(frozen=True)
class Execution:
    """How the work of training is done, in place of what the recipes say. It changes nothing that is learnt."""

    micro_batch: int | None = None
    """Sequences that one rank works on at once."""
    precision: Literal["auto", "float32", "bfloat16"] | None = None
    compile: bool | None = None

    def of(self, train: TrainSettings) -> TrainSettings:
        """The settings of a recipe, done in this way."""
        return replace(train, **{name: value for name, value in vars(self).items() if value is not None})


AS_RECIPES_SAY = Execution()


@plain(frozen=True)
class Scale:
    """A scale, as its file says it."""

    name: str
    settings: ScaleSettings
    runs: Mapping[str, Run]
    longer: int = 1
    """Every run has so many times the steps that the file says."""
    execution: Execution = AS_RECIPES_SAY

    @property
    def folder(self) -> str:
        """Where its models and results are: those of other lengths are others."""
        return self.name if self.longer == 1 else f"{self.name}-x{self.longer}"

    @property
    def title(self) -> str:
        """The title of the scale, in words."""
        return self.name if self.longer == 1 else f"{self.name} with {self.longer} times its steps"

    def run(self, name: str, wanted_by: str) -> Run:
        """A model by its name."""
        if name not in self.runs:
            near = hint(name, self.runs, "it has")
            raise ValueError(f"{wanted_by}: the scale {self.name} has no model '{name}'; {near}")
        return self.runs[name]

    def chain(self, name: str, wanted_by: str = "models") -> list[Run]:
        """All runs that lead to a model, in the order of training."""
        found = [self.run(name, wanted_by)]
        while (start := found[0].start) is not None:
            if start in {run.name for run in found}:
                raise ValueError(f"the scale {self.name}: the model '{start}' starts from itself")
            found.insert(0, self.run(start, found[0].name))
        return found


def read_scale(name: str, longer: int = 1) -> Scale:
    """The scale of a file, or of one that comes with the package, by its name."""
    path, data = _contents(name)
    entries = data.pop("runs", None)
    if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
        raise ValueError(f"{path}: runs must map the name of each model to how it is trained")
    settings = parse_recipe(data, ScaleSettings, str(path))
    if (settings.data is None) == (settings.prepare is None):
        raise ValueError(f"{path}: give one of data and prepare")
    if 1.0 not in settings.temperatures:
        raise ValueError(f"{path}: temperatures must have 1.0 among them; got {list(settings.temperatures)}")
    if settings.mauve in NO_NETWORKS:
        raise ValueError(f"{path}: mauve must name a network that has features; {settings.mauve} has none")
    parsed = {str(key): parse_recipe(entry, Entry, f"{path}: runs.{key}") for key, entry in entries.items()}
    found = {key: _run(key, parsed, path) for key in parsed}
    runs = {key: replace(run, set={**settings.set, **run.set}) for key, run in found.items()}
    scale = Scale(path.stem, settings, {key: _with_true_start(run, runs) for key, run in runs.items()}, longer)
    for key in scale.runs:
        scale.chain(key)
    return scale


def _contents(name: str, below: tuple[Path, ...] = ()) -> tuple[Path, dict[str, Any]]:
    """A file and what it says, where `like` names another scale from which all comes that it does not say."""
    path = find_file(name, "scale", "paper/scales")
    data = read_yaml(path)
    like = data.pop("like", None)
    if like is None:
        return path, data
    if not isinstance(like, str) or path in below:
        raise ValueError(f"{path}: like must name another scale, which is not like this one; got {like!r}")
    return path, _over(_contents(like, (*below, path))[1], data)


def _over(base: Any, changed: Any) -> Any:
    """Mappings key by key, where what is changed counts; anything else as it is changed."""
    if not (isinstance(base, dict) and isinstance(changed, dict)):
        return changed
    return {**base, **{key: _over(base.get(key), value) for key, value in changed.items()}}


def _with_true_start(run: Run, runs: Mapping[str, Run]) -> Run:
    """A start may be named by another name of the same model."""
    if run.start is None or run.start not in runs:
        return run
    return replace(run, start=runs[run.start].name)


def _run(name: str, entries: Mapping[str, Entry], path: Path) -> Run:
    entry, seen = entries[name], {name}
    if entry.like in entries and entry.like != name and entry == Entry(like=entry.like):
        return _run(str(entry.like), entries, path)
    while entry.like is not None:
        if entry.like not in entries or entry.like in seen:
            raise ValueError(f"{path}: runs.{name}: like must name another model of this file; got '{entry.like}'")
        seen.add(entry.like)
        base = entries[entry.like]
        entry = replace(
            base,
            command=entry.command or base.command,
            recipe=entry.recipe or base.recipe,
            start=entry.start or base.start,
            set={**base.set, **entry.set},
            says=entry.says,
            cost=entry.cost or base.cost,
        )
    if entry.command is None or entry.recipe is None:
        missing = "command" if entry.command is None else "recipe"
        raise ValueError(f"{path}: runs.{name}: {missing} is missing (commands: {', '.join(get_args(Command))})")
    if entry.start is not None and entry.command == "pretrain":
        raise ValueError(
            f"{path}: runs.{name}: pretrain begins with random weights; it takes no start ({entry.start!r})"
        )
    return Run(name, entry.command, entry.recipe, entry.start, entry.set, entry.says, entry.cost or 1.0)
