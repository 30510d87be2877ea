"""`multimdm train-text`: from a text of one's own to a few-step generator, in one command."""

import math
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from multimdm._inert import inert
from multimdm.cli.parsing import parse
from multimdm.data.options import PrepareOptions

if TYPE_CHECKING:
    from multimdm.own_text.budget import Request


@dataclass(frozen=True)
class Options:
    """Make a generator that writes your own text in one, two or four network calls.

    Example: multimdm train-text data/book --out runs/book

    SOURCE is a directory that multimdm prepare wrote, or text as it comes (files or folders), which is then prepared
    first. An autoregressive teacher is trained on it, then the model, which learns to read the numbers by which its
    teacher would draw the text (docs/quantile.md). A night on a laptop's two cores; --fast gives a first result in ten
    minutes. Stop it with Ctrl-C at any time: the same command goes on. It ends with samples.
    """

    source: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE ...", help_behavior_hint="")]
    """Your text: files or folders, as for multimdm prepare; or one directory that it wrote."""
    out: Path | None = None
    """The run's directory; its folder model holds the model. Default: runs/ and the name of the source."""
    fast: bool = False
    """A small network and few steps: a first result in about ten minutes on two cores."""
    size: Literal["laptop", "gpu"] = "laptop"
    """The recipes text-ar and text-quantile, or text-ar-gpu and text-quantile-gpu."""
    longer: float = 1.0
    """Train everything so many times as long; 0.5 is half."""
    seed: int = 0
    """The seed of weights, noise and samples."""
    tokenizer: str = "bpe:4096"
    """The tokenizer of plain text, as for multimdm prepare."""
    length: int = 128
    """Tokens per sequence of plain text."""
    layout: Literal["packed", "padded"] = "packed"
    """How plain text is laid out. packed: as running text. padded: every line is a text by itself."""
    valid_fraction: float = 0.05
    """The share of plain text that is held out, to tell how good the models are. 0 holds out nothing."""

    def check(self) -> None:
        """Say what is wrong before any work is done."""
        if not self.source:
            raise ValueError("give your text: a file, a folder, or a directory that multimdm prepare wrote")
        if not (math.isfinite(self.longer) and self.longer > 0):
            raise ValueError(f"--longer must be above 0; got {self.longer}")
        if self.seed < 0:
            raise ValueError(f"--seed must be 0 or more; got {self.seed}")
        if self.fast and self.size == "gpu":
            raise ValueError("--fast is for --size laptop: leave one of them out")


def main(arguments: Sequence[str]) -> None:
    """Parse the options and run."""
    options = parse(Options, arguments, "multimdm train-text", config=(tyro.conf.FlagCreatePairsOff,))
    options.check()
    out = options.out or Path("runs") / (Path(options.source[0]).name.split(".")[0] + "-fast" * options.fast)
    _say(f"{', '.join(options.source)}; everything is kept in {out}")
    try:
        from multimdm.own_text.budget import Request
        from multimdm.own_text.running import run
    except ModuleNotFoundError as error:
        raise ValueError(f"training needs the package {error.name}: pip install 'multimdm[train]'") from None

    request = Request(_data(options, out), out, options.size, options.fast, options.longer, options.seed)
    run(request, _say)
    _tell(request)


def _say(text: str) -> None:
    print(inert(f"train-text: {text}"), file=sys.stderr, flush=True)


def _data(options: Options, out: Path) -> Path:
    """Prepared data: those that were given, or of the text that was given."""
    from multimdm.data.manifest import is_prepared
    from multimdm.own_text.running import prepared

    first = Path(options.source[0])
    if is_prepared(first):
        if len(options.source) > 1:
            raise ValueError(f"{first} is prepared data, which stand alone; leave out {options.source[1]}")
        for name in _PREPARING:
            if getattr(options, name) != getattr(Options, name):
                flag = f"--{name.replace('_', '-')} {getattr(options, name)}"
                raise ValueError(f"{flag} is for text that is not prepared yet; {first} is: leave it out")
        return first
    from multimdm.cli.prepare import Bar

    preparing = PrepareOptions(sources=options.source, **{name: getattr(options, name) for name in _PREPARING})
    missing = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        with Bar() as bar:
            return prepared(preparing, out, bar.show)
    except BaseException:
        for folder in missing:
            with suppress(OSError):  # what is kept for the next time stays
                folder.rmdir()
        raise


_PREPARING = ("tokenizer", "length", "layout", "valid_fraction")


def _tell(request: "Request") -> None:
    """Samples, what held-out text says, and what to do next."""
    from multimdm.own_text.running import shown, verdict

    for one in shown(request):
        print(f"\n{one.calls} network call{'s' * (one.calls != 1)}:")
        for text in one.texts:
            print(f"  {inert(' '.join(text.split()))}")
    print()
    for line in verdict(request):
        print(line)
    told = (
        f"{request.out / 'model'} holds the model. What to do next:\n"
        f"  multimdm sample {request.out} --steps 2\n"
        f"  multimdm sample {request.out} --steps 4 --prompt 'The beginning of a text'\n"
        f"  multimdm evaluate {request.out} --steps 1 2 4 --judge {request.teacher} --data {request.data} "
        f"--out {request.out / 'measured'} --report\n"
        f"  multimdm serve {request.out}"
    )
    print(inert(told))
