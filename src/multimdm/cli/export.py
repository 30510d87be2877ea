"""`multimdm export`: an imported checkpoint in the layout it came from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from multimdm.cli.parsing import parse


@dataclass(frozen=True)
class Options:
    """Write an imported checkpoint back as config.json and model.safetensors in the Hub's layout.

    Its tensors are equal, byte for byte, to those that were imported, unless it was trained since.
    """

    checkpoint: tyro.conf.Positional[Path]
    """A directory that `multimdm import` wrote, or an adapter of a LLaDA network, which is merged into its base."""
    out: Path
    """Directory to write; it must not exist yet."""
    base: str | None = None
    """Where the base of an adapter is, if it is no longer where it was."""


def main(arguments: Sequence[str]) -> None:
    """Parse the options and run."""
    options = parse(Options, arguments, "multimdm export")
    from multimdm.pipeline import load
    from multimdm.pipeline.exchange import export_checkpoint

    export_checkpoint(load(options.checkpoint, base=options.base), options.out)
    print(f"wrote {options.out}")
