"""`multimdm card`: the model card of a checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from multimdm.cli.parsing import parse

if TYPE_CHECKING:
    from multimdm.pipeline import Model
    from multimdm.pipeline.card import CardDetails


@dataclass(frozen=True)
class CardOptions:
    """What the card says beside what the checkpoint knows of itself."""

    license: str | None = None
    """The licence, as the Hub calls it: apache-2.0, mit, ... Nothing is said of it unless given."""
    language: tuple[str, ...] = ()
    """Languages of the texts, as codes: en de"""
    results: Path | None = None
    """Figures: the results.json that `multimdm evaluate --out` wrote for this checkpoint."""


@dataclass(frozen=True)
class Options:
    """Write the model card of a checkpoint, as Markdown with the front matter that the Hugging Face Hub reads.

    It tells what the model is, how to load and sample it, how it was made (data, recipes, budgets, seeds), and with
    --results its figures, with judge and entropy. Numbers that were not measured are not in it.
    """

    checkpoint: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CKPT")]
    """Directory of a checkpoint, or its name on the Hub."""
    name: str | None = None
    """The name that it is to be loaded by, such as org/name. Default: CKPT itself."""
    card: tyro.conf.OmitArgPrefixes[CardOptions] = field(default_factory=CardOptions)
    out: Path | None = None
    """Write to this file instead; it must not exist yet."""


def main(arguments: Sequence[str]) -> None:
    """Parse the options and run."""
    options = parse(Options, arguments, "multimdm card")
    if options.out is not None and options.out.exists():
        raise ValueError(f"--out {options.out} exists already; choose another place or remove it")
    from multimdm._files import write_text
    from multimdm.pipeline.card import model_card

    model, details = open_with_details(options.checkpoint, options.card)
    text = model_card(model, options.name or options.checkpoint.rstrip("/"), details)
    if options.out is None:
        print(text, end="")
        return
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_text(options.out, text)
    print(f"wrote {options.out}")


def open_with_details(checkpoint: str, options: CardOptions) -> "tuple[Model, CardDetails]":
    """The checkpoint (of an adapter, without its base), and what its card is to say."""
    from multimdm.builtin import builtin_directory
    from multimdm.pipeline.builtin_cards import builtin_card
    from multimdm.pipeline.card import CardDetails
    from multimdm.pipeline.hub import local_directory
    from multimdm.pipeline.model import load_outline

    directory, figures = local_directory(checkpoint), None
    if options.results is not None:
        from multimdm.pipeline.files import fingerprint_of_checkpoint
        from multimdm.report.card_figures import card_figures, read_results

        figures = card_figures(read_results(options.results, fingerprint_of_checkpoint(directory)))
    elif directory == builtin_directory(checkpoint):
        figures = builtin_card(checkpoint).figures_text
    return load_outline(directory), CardDetails(options.license, options.language, figures)
