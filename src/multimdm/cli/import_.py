"""`multimdm import`: a checkpoint of MDLM or DUO in our format."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from multimdm.cli.parsing import parse


@dataclass(frozen=True)
class Options:
    """Read a checkpoint of another project and write it in our format, ready for adapt, distill and sample.

    The source is a directory with config.json and model.safetensors as on the Hub, or a Lightning .ckpt file, of which
    the moving average of the weights is taken where there is one.
    """

    source: tyro.conf.Positional[Path]
    """Directory, .ckpt file, or a name on the Hub such as org/name."""
    kind: Literal["mdlm", "duo"]
    """Whose it is: the two look alike, but MDLM's last token is a mask and DUO's is not."""
    out: Path
    """Directory to write; it must not exist yet."""
    mask_id: int | None = None
    """MDLM's mask, if it is neither the last id nor BERT's 103."""
    tokenizer: str | None = None
    """Its tokenizer, to be stored beside it: a directory or a Hub name (gpt2, bert-base-uncased)."""


def main(arguments: Sequence[str]) -> None:
    """Parse the options and run."""
    options = parse(Options, arguments, "multimdm import")
    from multimdm.data.foreign_tokenizers import load_tokenizer
    from multimdm.pipeline.exchange import import_checkpoint

    tokenizer = load_tokenizer(options.tokenizer) if options.tokenizer is not None else None
    model = import_checkpoint(options.source, options.kind, options.mask_id, tokenizer)
    model.save(options.out)
    parameters = sum(x.numel() for x in model.network.parameters())
    print(f"{model.process}: {parameters:,} parameters, weights {model.lineage[0]['weights']}")
    print(f"wrote {options.out}")
