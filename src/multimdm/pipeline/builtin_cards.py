"""What is known of a model that comes with the package: how it was made, what it can do, what its files hold."""

from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from multimdm.builtin import CARD, builtin_directory, builtin_names
from multimdm.pipeline.files import sha256_of
from multimdm.pipeline.settings import read_file

_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_STRICT)
class Figure:
    """A measured value with its interval over samples."""

    value: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """The value with its interval in brackets."""
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


@dataclass(frozen=True, config=_STRICT)
class CardFigures:
    """Samples at K steps, drawn as the model advises."""

    steps: int
    calls: int
    """Network calls per sample: K, or one for each token of an autoregressive model."""
    gen_ppl: Figure
    """GenPPL by the exact judge of Tales."""
    entropy: Figure
    """The unigram entropy of a sample, averaged."""
    pooled_entropy: Figure
    """The unigram entropy of all samples together."""
    valid_sentences: Figure
    valid_stories: Figure


@dataclass(frozen=True, config=_STRICT)
class CardStage:
    """One training run of its lineage."""

    command: str
    recipe: str
    steps: int
    sequences: int
    """Steps times the batch size."""
    seed: int


@dataclass(frozen=True, config=_STRICT)
class BuiltinCard:
    """What a model that comes with the package is."""

    name: str
    says: str
    """What the model is, in a sentence."""
    parameters: int
    stages: tuple[CardStage, ...]
    """Oldest first; the training of its teacher is among them."""
    commit: str
    """The commit of this project with which the model was packed."""
    samples: int
    """Samples per measurement."""
    seed: int
    """The seed of these samples."""
    figures: tuple[CardFigures, ...]
    sha256: Annotated[dict[str, str], Field(min_length=1)]
    """The hash of every other file of the model, by its name."""

    @property
    def figures_text(self) -> str:
        """The figures as a table in Markdown."""
        lines = [
            f"{self.samples} samples, seed {self.seed}, drawn as the model advises; GenPPL by the exact judge of "
            "Tales, with 95% intervals over samples. Real stories have GenPPL 2.83.",
            "",
            "| calls | GenPPL | entropy | pooled entropy | valid sentences | valid stories |",
            "|---|---|---|---|---|---|",
        ]
        for one in self.figures:
            lines.append(
                f"| {one.calls} | {one.gen_ppl.text} | {one.entropy.value:.2f} "
                f"| {one.pooled_entropy.value:.2f} | {one.valid_sentences.value:.0%} | {one.valid_stories.value:.0%} |"
            )
        return "\n".join(lines)

    @property
    def sequences(self) -> int:
        """The number of sequences that it was trained on, in all."""
        return sum(stage.sequences for stage in self.stages)


def builtin_card(name: str) -> BuiltinCard:
    """What is known of the model of this name."""
    directory = builtin_directory(name)
    if directory is None:
        raise ValueError(f"there is no built-in model {name!r}; there are: {', '.join(builtin_names())}")
    return read_file(BuiltinCard, directory / CARD)


def altered_files(name: str) -> list[str]:
    """Files of a built-in model that are not what its card says, are missing, or that it does not know."""
    card, root = builtin_card(name), builtin_directory(name)
    assert root is not None
    there = {path.name for path in root.iterdir() if path.name != CARD}
    wrong = {file for file in there & set(card.sha256) if sha256_of(root / file) != card.sha256[file]}
    return sorted(wrong | (there ^ set(card.sha256)))
