"""`multimdm push`: a checkpoint on the Hugging Face Hub."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from multimdm.cli.card import CardOptions, open_with_details
from multimdm.cli.parsing import parse

if TYPE_CHECKING:
    from multimdm.pipeline import Model


@dataclass(frozen=True)
class Options:
    """Give a checkpoint to a repository on the Hugging Face Hub, with a model card as its README.md.

    Example: multimdm push runs/fast/model me/tales-fast --license apache-2.0 --results runs/measured/results.json

    The repository and the branch are made if they are not there. Log in first: `hf auth login`, or set HF_TOKEN. An
    adapter is pushed alone, without its base. --dry-run shows what would be sent, and sends nothing.
    """

    checkpoint: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CKPT")]
    """Directory of a checkpoint."""
    repo: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="REPO")]
    """The repository: org/name."""
    private: bool = False
    """Make it a private repository, if it is new."""
    revision: str | None = None
    """The branch to push to; main unless given."""
    message: str | None = None
    """The message of the commit."""
    card: tyro.conf.OmitArgPrefixes[CardOptions] = field(default_factory=CardOptions)
    keep_card: bool = False
    """Leave the README.md that is there as it is."""
    dry_run: bool = False
    """Print the files with their sizes and the card; nothing is sent."""


def main(arguments: Sequence[str]) -> None:
    """Parse the options and run."""
    options = parse(Options, arguments, "multimdm push", config=(tyro.conf.FlagCreatePairsOff,))
    from multimdm.pipeline.card import model_card
    from multimdm.pipeline.hub import check_repository

    check_repository(options.repo)
    model, details = open_with_details(options.checkpoint, options.card)
    text = None if options.keep_card else model_card(model, options.repo, details, options.revision)
    if options.dry_run:
        _show(model, text)
        return
    where = model.push_to_hub(
        options.repo,
        private=options.private or None,
        revision=options.revision,
        commit_message=options.message,
        card=text,
    )
    print(f"pushed {options.checkpoint} to {where}")


def _show(model: "Model", card: str | None) -> None:
    """Print what would be sent."""
    with tempfile.TemporaryDirectory() as place:
        model.save(Path(place) / "model")
        for file in sorted((Path(place) / "model").iterdir()):
            print(f"{file.stat().st_size:>16,} bytes  {file.name}")
    if card is not None:
        print(f"{len(card.encode()):>16,} bytes  README.md\n\n{card}", end="")
