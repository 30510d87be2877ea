"""`multimdm quickstart`: the whole story in minutes."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from multimdm._inert import inert
from multimdm.cli.parsing import parse


@dataclass(frozen=True)
class Options:
    """Train, adapt, distil, generate and compare, on the built-in corpus: the whole story in minutes.

    Trains a masked diffusion model of short stories, continues it with one mask (the control) and with twenty, distils
    both into few-step generators, trains an autoregressive model and with it one on quantile noise, measures these five
    exactly at K = 1, 2, 4, 8 and 16 network calls beside the perfect network and the autoregressive model, and writes a
    report. Stop it with Ctrl-C at any time: the same command goes on where it was stopped.
    """

    fast: bool = False
    """A short version of everything, in two to four minutes; its models are poor."""
    seed: int = 0
    """The seed of weights, stories, noise and samples. It gives the same numbers on the same machine with the same
    number of threads: sums in another order differ in their last bits, and one bit can decide a draw."""
    out: Path | None = None
    """Where everything is written. Default: runs/quickstart, or runs/quickstart-fast."""


def main(arguments: Sequence[str]) -> None:
    """Parse the options and run."""
    options = parse(Options, arguments, "multimdm quickstart", config=(tyro.conf.FlagCreatePairsOff,))
    if options.seed < 0:
        raise ValueError(f"--seed must be 0 or more; got {options.seed}")
    out = options.out or Path("runs") / ("quickstart-fast" if options.fast else "quickstart")
    print(inert(f"quickstart: everything is kept in {out}"), file=sys.stderr, flush=True)  # imports take seconds
    try:
        from multimdm.reproduce.running import run_quickstart
    except ModuleNotFoundError as error:
        raise ValueError(f"the quickstart needs the package {error.name}: pip install 'multimdm[train]'") from None
    from multimdm.report.quickstart_report import in_one_sentence

    print(in_one_sentence(run_quickstart("quickstart-fast" if options.fast else "quickstart", out, options.seed)))
    print(
        f"\nThe report is {out / 'report.html'}. What to do next:\n"
        f"  multimdm sample {out / 'quantile' / 'model'} --steps 2 --num 2 --trace\n"
        f"  multimdm sample {out / 'quantile' / 'model'} --steps 2 --prompt 'Lily raced to the harbor'\n"
        f"  multimdm sample {out / 'mdlm' / 'model'} --steps 2\n"
        f"  multimdm distill tales-distill-gumbel --init {out / 'multimdm' / 'model'} --out {out / 'distilled-longer'}"
    )
