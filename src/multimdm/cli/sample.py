"""`multimdm sample`: texts from a checkpoint."""

import io
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from multimdm._inert import inert, inert_json
from multimdm.builtin import USUAL
from multimdm.cli.device import Device, NetworkOptions, PrecisionOption, network_options
from multimdm.samplers.settings import Sampling, our_word

if TYPE_CHECKING:
    from multimdm.pipeline import Model, Samples
    from multimdm.pipeline.ranks import Ranks
    from multimdm.samplers.loop import Watch


@dataclass(frozen=True)
class Options(NetworkOptions):
    """Draw texts from a model. K steps are K network calls, or fewer if a text is finished sooner.

    A checkpoint may advise an order, a temperature, a grid, a threshold and a number of steps: they are followed where
    no option says otherwise, and --json tells what came of it. One that was trained on prompts and answers also knows
    how a prompt is written for it (--chat, --bos), and gives the answer alone, up to its end.

    With --prompt, continuations of a text (--chat: answers to what a user says); with --infill, a text whose every
    [MASK] is replaced by one token.
    """

    checkpoint: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CKPT")] = USUAL
    """Directory of a checkpoint, its name on the Hub, or that of a model that comes with the package (`multimdm
    models`); without one, the built-in model of short stories."""
    base: str | None = None
    """Where the base of an adapter is, if it is no longer where it was."""
    num: int = 4
    """How many texts, of each prompt if there are any."""
    length: int | None = None
    """Tokens of each, the prompt included; the longest that the network is made for unless given."""
    sampling: Sampling = field(default_factory=Sampling)
    prompt: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Begin with this text; given several times, --num texts for each."""
    chat: bool = False
    """The prompt is what a user says: put it into the tokenizer's chat template, and show the answers alone."""
    new_tokens: int | None = None
    """Tokens after the prompt, in place of --length."""
    infill: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """A text with [MASK] for each token to be made; its length is the length. May be given several times, too."""
    bos: bool = False
    """Put the tokenizer's BOS before the text, as packed training data have it."""
    seed: int = 0
    """Equal seeds give equal texts, whatever the batch size."""
    batch_size: int = 64
    """Sequences that go through the network together."""
    device: Device = "auto"
    precision: PrecisionOption = "auto"
    trace: bool = False
    """Also show the states of every step, as a grid."""
    json: bool = False
    """Print JSON with settings, ids and, with --trace, all states."""
    out: Path | None = None
    """Write to this file instead; it must not exist yet."""

    def check(self) -> None:
        """Say what is wrong before the checkpoint is read."""
        self.sampling.check()
        for name, value, least in (("num", self.num, 1), ("batch-size", self.batch_size, 1), ("seed", self.seed, 0)):
            if value < least:
                raise ValueError(f"--{name} must be at least {least}; got {value}")
        if self.prompt and self.infill:
            raise ValueError("--prompt and --infill exclude each other; write the prompt into the text to be filled in")
        if self.infill and self.length is not None:
            raise ValueError(f"--length must be left out with --infill, whose text says it; got {self.length}")
        if self.bos and not self.prompt and not self.infill:
            raise ValueError("--bos needs --prompt or --infill")
        for name, given in (("chat", self.chat), ("new-tokens", self.new_tokens is not None)):
            if given and not self.prompt:
                raise ValueError(f"--{name} needs --prompt")
        if self.new_tokens is not None and (self.length is not None or self.new_tokens < 1):
            raise ValueError(f"--new-tokens must be at least 1, without --length; got {self.new_tokens}, {self.length}")
        if self.chat and self.bos:
            raise ValueError("--bos must be left out with --chat: the template says how a text begins")
        if self.out is not None and self.out.exists():
            raise ValueError(f"--out {self.out} exists already; choose another place or remove it")


def main(arguments: Sequence[str]) -> None:
    """Parse the options and run."""
    _check_names(arguments)
    options = network_options(Options, arguments, "multimdm sample")
    from multimdm.pipeline.ranks import sharing

    with sharing() as ranks:
        model = _open(options)
        with _progress(options, ranks) as watch:
            samples = _draw(model, options, watch)
    if not ranks.is_main:
        return
    if options.out is None:
        _write(model, options, samples, sys.stdout)
    else:
        from multimdm._files import write_text

        text = io.StringIO()
        _write(model, options, samples, text)
        write_text(options.out, text.getvalue())
    where = f"; wrote {options.out}" if options.out is not None else ""
    print(inert(f"{_account(model, samples)}{where}"), file=sys.stderr)


def _check_names(arguments: Sequence[str]) -> None:
    """Options that other programs have are answered with our word for them."""
    for word in arguments:
        name = word.partition("=")[0]
        if name.startswith("--") and (ours := our_word(name[2:])) is not None:
            raise ValueError(f"there is no option {name}; here it is --{ours.replace('_', '-')}")


def _open(options: Options) -> "Model":
    """The model; everything that can fail before any work."""
    from multimdm.pipeline import load

    model = load(options.checkpoint, options.device, options.precision, options.base)
    if model.tokenizer is None and not options.json:
        raise ValueError(
            f"{options.checkpoint} has no tokenizer to make text of the ids: import it with --tokenizer NAME, "
            "or ask for the ids with --json"
        )
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)  # fails now rather than after the work
    return model


def _account(model: "Model", samples: "Samples") -> str:
    """How much was made of how many calls, and why these are fewer than was asked for."""
    num, length = samples.ids.shape
    most = "" if samples.valid is None else "up to "
    text = f"{num} text{'s' * (num != 1)} of {most}{length} token{'s' * (length != 1)} by {samples.nfe} network call"
    text += "s" * (samples.nfe != 1)
    if model.process is None or samples.sampling is None or samples.nfe >= samples.sampling.num_steps:
        return text
    return f"{text}, finished early: nothing was left to do in the rest of {samples.sampling.num_steps} steps"


def _draw(model: "Model", options: Options, watch: "Watch") -> "Samples":
    """The samples that were asked for."""
    named: dict[str, Any] = {"sampling": options.sampling, "num": options.num, "seed": options.seed}
    named |= {"batch_size": options.batch_size, "trace": options.trace}
    if options.infill:
        return model.infill(options.infill, bos=options.bos, watch=watch, **named)
    if options.prompt:
        named |= {"chat": options.chat or None, "new_tokens": options.new_tokens}
        return model.complete(options.prompt, length=options.length, bos=options.bos or None, watch=watch, **named)
    return model.sample(length=options.length, watch=watch, **named)


def _write(model: "Model", options: Options, samples: "Samples", file: Any) -> None:
    """Texts and grids, or JSON."""
    if options.json:
        file.write(inert_json(json.dumps(_as_data(options, samples), ensure_ascii=False)) + "\n")
        return
    from rich.console import Console

    from multimdm.cli.trace_grid import print_trace

    console = Console(file=file, highlight=False)
    for number, text in enumerate(samples.texts):
        print(f"[{number + 1}] {inert(text)}", file=file)
        if samples.trace is not None:
            print_trace(model, samples.trace.within(_lengths(samples)[number]), number, console)


def _lengths(samples: "Samples") -> list[int]:
    """Tokens of each, without the padding behind it."""
    num, longest = samples.ids.shape
    return [longest] * num if samples.valid is None else samples.valid.sum(1).tolist()


def _as_data(options: Options, samples: "Samples") -> dict[str, Any]:
    """All there is to know about the samples."""
    lengths = _lengths(samples)
    rows: list[dict[str, Any]] = [{"ids": ids[:n]} for ids, n in zip(samples.ids.tolist(), lengths, strict=True)]
    for row, text in zip(rows, samples.texts, strict=False):  # no texts without a tokenizer
        row["text"] = text
    if samples.trace is not None:
        states, times = samples.trace.states.transpose(0, 1), samples.trace.times.T
        for row, state, time, n in zip(rows, states.tolist(), times.tolist(), lengths, strict=True):
            row["trace"] = {"times": time, "states": [ids[:n] for ids in state]}
    settings = {name: value for name, value in asdict(options).items() if name not in ("out", "json", "trace")}
    if samples.sampling is not None:
        settings["sampling"] = asdict(samples.sampling)  # with what was advised or usual
    return {"settings": settings, "nfe": samples.nfe, "samples": rows}


@contextmanager
def _progress(options: Options, ranks: "Ranks") -> Iterator["Watch"]:
    """A bar on the terminal, one tick per step of a batch."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, quiet=not ranks.is_main)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    num = options.num * max(1, len(options.prompt), len(options.infill))
    batches = -(-num // options.batch_size)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("steps", total=None)

        def watch(done: int, steps: int, states: object) -> None:
            bar.update(task, total=steps * batches, advance=ranks.ranks)

        yield watch
