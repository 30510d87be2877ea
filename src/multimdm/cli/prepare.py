"""`multimdm prepare`: text to memory-mapped sequences of tokens."""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from multimdm._inert import inert
from multimdm.cli.parsing import parse
from multimdm.data.options import PrepareOptions
from multimdm.data.options import preset as options_of_preset

if TYPE_CHECKING:
    from multimdm.data.preparing import Prepared


@dataclass(frozen=True, kw_only=True)
class Options(PrepareOptions):
    """Turn text into sequences of tokens that training reads, once.

    Example: multimdm prepare book.txt --tokenizer bpe:4096 --length 128 --valid-fraction 0.05 --out data/book

    Writes tokens.bin and lengths.bin (memory-mapped arrays), counts.bin (how often each token occurs), the tokenizer,
    and manifest.json (what was done, from what, and how much there is). Asked for the same again, it does nothing;
    stopped, it goes on where it was when the same command is given.
    """

    sources: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE ...")] = ()
    out: Path = Path("data/prepared")
    """Directory to write to; made if it is not there."""
    preset: Literal["lm1b", "openwebtext"] | None = None
    """Defaults for a corpus of the field; other options override them. --preset lm1b --help shows them."""
    force: bool = False
    """Prepare anew even if the directory holds prepared data, or an unfinished preparation of something else."""
    workers: int = 1
    """Processes that encode, for machines with many cores. One uses them all as far as the tokenizer can; the result is
    the same."""


def main(arguments: Sequence[str]) -> None:
    """Parse the options and run."""
    options = parse(
        Options,
        arguments,
        "multimdm prepare",
        default=_defaults(arguments),
        config=(tyro.conf.FlagCreatePairsOff, tyro.conf.DisallowNone),
    )
    preset = options_of_preset(options.preset) if options.preset is not None else {}
    if options.valid and options.valid == preset.get("valid") and options.sources != preset.get("sources"):
        options = replace(options, valid=())  # the preset's held-out text belongs to the preset's own sources
    run(options)


def _defaults(arguments: Sequence[str]) -> Options:
    """The defaults, or those of the preset if one is named."""
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    finder.add_argument("--preset")
    try:
        name = finder.parse_known_args(list(arguments))[0].preset
    except argparse.ArgumentError:
        name = None  # no name follows; tyro says so
    given = dict(options_of_preset(name)) if name else {}
    named = {argument.partition("=")[0].replace("_", "-") for argument in arguments}
    if "--mix" in named:
        given.pop("sources", None)
    if named & {"--valid", "--valid-fraction", "--valid-last"}:
        given = {key: value for key, value in given.items() if not key.startswith("valid")}
    return Options(preset=name, **given)


def run(options: Options) -> None:
    """Prepare with a progress bar, then tell what there is."""
    from multimdm.data.preparing import prepare

    start = time.perf_counter()
    with Bar() as bar:
        prepared = prepare(options, options.out, options.force, bar.show, options.workers)
    print(inert(_summary(prepared, time.perf_counter() - start)))


class Bar:
    """Documents, tokens per second and, where the size is known, the time that remains."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[account]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
        )
        self._progress = Progress(*columns)
        self._tasks = {}
        self._starts: dict[str, float] = {}

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        if self._tasks:
            self._progress.stop()

    def show(self, state) -> None:
        """Draw the state of the work."""
        now = time.perf_counter()
        self._progress.start()  # not before: with nothing to do, nothing is drawn
        if state.stage not in self._tasks:
            self._tasks[state.stage] = self._progress.add_task(state.stage, total=state.bytes_total, account="")
            self._starts[state.stage] = now
        seconds = max(now - self._starts[state.stage], 1e-9)
        account = f"{state.documents:,} documents"
        if state.tokens and seconds > 0.1:
            account += f", {state.tokens / seconds:,.0f} tokens/s"
        self._progress.update(self._tasks[state.stage], completed=state.bytes_read, account=account)


def _summary(prepared: "Prepared", seconds: float) -> str:
    """What there is, split by split."""
    first = next(iter(prepared.manifests.values()))
    if prepared.reused:
        lines = [f"{prepared.directory} is up to date: nothing has changed (--force prepares it anew)"]
    else:
        lines = [f"wrote {prepared.directory} in {seconds:.1f} s"]
        lines[0] += f", going on with {prepared.kept:,} documents that were encoded" if prepared.kept else ""
    lines.append(f"  tokenizer  {first.tokenizer}, {first.vocab_size:,} tokens, {first.tokenizer_fingerprint[:12]}")
    for split, manifest in prepared.manifests.items():
        counts = manifest.counts
        padding = 1 - counts.tokens / (counts.sequences * manifest.length)
        line = (
            f"  {split:<9}  {counts.documents:,} documents in {counts.sequences:,} sequences of {manifest.length}, "
            f"{counts.tokens:,} tokens, {padding:.1%} padding"
        )
        line += f", {counts.truncated:,} documents cut" if counts.truncated else ""
        line += f", {counts.dropped:,} tokens left out" if counts.dropped else ""
        line += f", {counts.left_out:,} pairs too long" if counts.left_out else ""
        line += f", {counts.unknown:,} unknown" if counts.unknown else ""
        lines.append(line)
        if counts.first_lost is not None:
            lines.append(
                f"  warning    {counts.unknown:,} characters of {split} are left out, {counts.first_lost!r} first: the "
                "tokenizer does not know them, and what they were cannot be learnt; bpe:SIZE knows every text"
            )
        elif counts.unknown:
            share = counts.unknown / max(counts.tokens, 1)
            lines.append(
                f"  warning    {share:.2%} of the tokens of {split} stand for text that the tokenizer does not know: "
                "what it was cannot be learnt; bpe:SIZE knows every text"
            )
    return "\n".join(lines)
