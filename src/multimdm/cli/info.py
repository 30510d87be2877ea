"""`multimdm info`: what a checkpoint is."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from multimdm.cli.parsing import parse


@dataclass(frozen=True)
class Options:
    """Tell what a checkpoint is: sizes, process, tokenizer, how it came to be, how it wants to be sampled, its figures.

    Example: multimdm info runs/tales-mdlm
    """

    checkpoint: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CKPT")]
    """Directory of a checkpoint, or of a run that has one; or its name on the Hub."""
    recipes: bool = False
    """Also print the recipe of every step, whole."""


def main(arguments: Sequence[str]) -> None:
    """Parse the options and print."""
    options = parse(Options, arguments, "multimdm info", config=(tyro.conf.FlagCreatePairsOff,))
    import yaml

    from multimdm._inert import inert
    from multimdm.pipeline.about import describe
    from multimdm.pipeline.hub import local_directory
    from multimdm.pipeline.model import load_outline

    directory = local_directory(options.checkpoint)
    model = load_outline(directory)
    size = sum(file.stat().st_size for file in directory.iterdir() if file.is_file())
    print(inert(f"{directory}: {size / 1e6:,.1f} MB"))
    for heading, text in {**describe(model), "figures": _figures(directory)}.items():
        for number, line in enumerate([text] if isinstance(text, str) else text):
            print(f"  {heading if number == 0 else '':<9}  {inert(line)}")
    if options.recipes:
        for step in model.lineage:
            print(f"\n{yaml.safe_dump(step, sort_keys=False)}", end="")


def _figures(directory: Path) -> list[str]:
    """The figures on the card of a built-in model, or what the last validation of a run found."""
    from multimdm.builtin import builtin_root

    if directory.parent == builtin_root():
        from multimdm.cli.models import figures_of
        from multimdm.pipeline.builtin_cards import builtin_card

        return list(figures_of(builtin_card(directory.name)))
    from multimdm.training.records import METRICS, last_validation

    found = last_validation(directory.parent) if (directory.parent / METRICS).is_file() else None
    return ["none here: multimdm evaluate measures"] if found is None else [found]
