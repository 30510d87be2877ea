"""`multimdm evaluate --harness`: base and adapted models on tasks, at several numbers of tokens per step."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

import tyro

from multimdm.cli.device import Device, NetworkOptions, network_options
from multimdm.evaluation.harness.settings import TaskSettings


@dataclass(frozen=True, kw_only=True)
class Options(TaskSettings, NetworkOptions):
    """Measure models on math and code tasks through lm-evaluation-harness, at several numbers of tokens per step.

    Example: multimdm evaluate --harness models/LLaDA-8B-Base runs/llada-8b-multimask/model --tasks math500 gsm8k
    --data benchmarks/ --out runs/table

    Prints the table of Tab. (llada): per cent of items answered rightly, with binomial 95% intervals, the number of
    items, network calls and tokens per call, and accuracy under parallelism. With --out, results.json and table.md are
    written there, and what is finished is not computed again.
    """

    checkpoints: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="CHECKPOINT ...")]
    """Directories of checkpoints or names on the Hub: LLaDA's published layout, adapters, or models of ours."""
    harness: bool = False
    """Use lm-evaluation-harness."""
    gen_length: int | None = None
    """New tokens per answer; what each task asks for unless given (256 or 512)."""
    block_length: int | None = None
    """Tokens that are made at once, block by block from left to right; the whole answer unless given."""
    temperature: float = 0.0
    """0 takes the most probable tokens."""
    remasking: Literal["low_confidence", "random"] = "low_confidence"
    """What waits for later steps: the least sure tokens, or any."""
    cfg_scale: float = 0.0
    """Classifier-free guidance; above 0 every step is two network calls."""
    logits_eos_inf: bool = False
    """Never choose the end of text."""
    confidence_eos_eot_inf: bool = False
    """Fill positions with the end of text or of turn last."""
    base: str | None = None
    """Where the base of adapters is, if it is no longer where it was."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """The precision of the weights in memory; auto is what the files have."""
    device: Device = "auto"
    out: Path | None = None
    """Directory for results.json and table.md; the same command again goes on where it was stopped."""

    def check(self) -> None:
        """Say what is wrong before a checkpoint is read."""
        if not self.checkpoints:
            raise ValueError("give at least one checkpoint: multimdm evaluate --harness CHECKPOINT ...")


def main(arguments: Sequence[str]) -> None:
    """Parse the options and run."""
    options = network_options(Options, arguments, "multimdm evaluate")
    try:
        from multimdm.evaluation.harness.running import HarnessPlan, run_plan
    except ModuleNotFoundError as error:
        raise ValueError(f"--harness needs the package {error.name}: pip install 'multimdm[eval]'") from None
    from multimdm.evaluation.store import Store, write_json
    from multimdm.pipeline.answers import Answering
    from multimdm.pipeline.ranks import sharing
    from multimdm.report.harness_table import as_data, markdown, print_scores

    names = ("block_length", "temperature", "remasking", "cfg_scale", "logits_eos_inf", "confidence_eos_eot_inf")
    length = {} if options.gen_length is None else {"gen_length": options.gen_length}
    plan = HarnessPlan(
        answering=Answering(**length, **{name: getattr(options, name) for name in names}),
        own_length=options.gen_length is None,
        **{one.name: getattr(options, one.name) for one in fields(TaskSettings)},
    )
    store = Store(None if options.out is None else options.out / "results")
    with sharing() as ranks:
        report = _say if ranks.is_main else _nothing
        scores = run_plan(plan, options.checkpoints, store, options.device, options.precision, options.base, report)
    if not ranks.is_main:
        return
    if options.out is not None:
        from multimdm._files import write_text

        options.out.mkdir(parents=True, exist_ok=True)
        write_json(options.out / "results.json", as_data(scores))
        write_text(options.out / "table.md", markdown(scores))
    print_scores(scores)
    if options.out is not None:
        print(f"wrote results.json and table.md to {options.out}")


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _nothing(text: str) -> None:
    """Say nothing: another rank does."""
