"""`multimdm models`: those that come with the package."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from multimdm.cli.parsing import parse

if TYPE_CHECKING:
    from multimdm.pipeline.builtin_cards import BuiltinCard


@dataclass(frozen=True)
class Options:
    """List the models that come with the package, with their cards: recipe, seed, commit, budget, figures, hash.

    Example: multimdm models tales

    Every command that takes a checkpoint takes their names too, unless a checkpoint of that name lies here.
    """

    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[NAME ...]")] = ()
    """The models to list; all unless given."""
    json: bool = False
    """Print the cards as JSON."""


def main(arguments: Sequence[str]) -> None:
    """Parse the options and print; files that are not what a card says are an error."""
    options = parse(Options, arguments, "multimdm models", config=(tyro.conf.FlagCreatePairsOff,))
    from multimdm.builtin import builtin_names
    from multimdm.pipeline.builtin_cards import altered_files, builtin_card

    cards = [builtin_card(name) for name in options.names or builtin_names()]
    if options.json:
        print(json.dumps([asdict(card) for card in cards], indent=2))
    else:
        print("\n\n".join("\n".join(_lines(card)) for card in cards))
    altered = [f"{card.name}/{file}" for card in cards for file in altered_files(card.name)]
    if altered:
        raise ValueError(f"not what the cards say: {', '.join(altered)}; install the package anew")


def _lines(card: "BuiltinCard") -> Iterator[str]:
    """The lines of a card, for reading."""
    yield f"{card.name}: {card.says}"
    yield f"  size     {card.parameters / 1e6:.2f} million parameters, in half precision on disk"
    for stage in card.stages:
        budget = f"{stage.steps:,} steps, {stage.sequences:,} stories"
        yield f"  made by  multimdm {stage.command}, recipe {stage.recipe}, seed {stage.seed}: {budget}"
    yield f"  commit   {card.commit}"
    yield f"  sha256   {card.sha256['model.safetensors']}  model.safetensors"
    for number, line in enumerate(figures_of(card)):
        yield f"  {'figures' if number == 0 else '':<7}  {line}"


def figures_of(card: "BuiltinCard") -> Iterator[str]:
    """What it can do, as measured when it was packed."""
    yield f"{card.samples} samples, seed {card.seed}; in brackets 95% intervals over samples"
    for one in card.figures:
        calls = "call " if one.calls == 1 else "calls"
        valid = (
            f"{100 * one.valid_sentences.value:.0f}% of sentences and {100 * one.valid_stories.value:.0f}% of stories"
        )
        entropies = f"entropy {one.entropy.value:.2f}, pooled {one.pooled_entropy.value:.2f}"
        yield f"{one.calls:>2} {calls}  GenPPL {one.gen_ppl.text}, {entropies}, {valid} valid"
