"""`multimdm pareto`: several models against each other."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from multimdm.cli.device import Device, NetworkOptions, PrecisionOption, network_options
from multimdm.cli.measuring import Checkpoints, check_measuring, measured, open_reader, open_text, parse_entropy
from multimdm.evaluation.settings import Drawing

if TYPE_CHECKING:
    from multimdm.evaluation.plan import Evaluation, Plan
    from multimdm.evaluation.subject import Subject

_OWN = re.compile(
    r"pareto-K\d+\.png|pareto\.csv|(entropy|temperature)-aligned\.csv|tables\.md|results\.json|report\.html"
)
"""Files that this command writes."""


@dataclass(frozen=True)
class Options(NetworkOptions):
    """Perplexity against entropy for several models, and the tables of the paper.

    Example: multimdm pareto runs/mdlm/model runs/multimdm/model --steps 4 8 16 --out runs/pareto

    Writes a picture for each K (pareto-K4.png, ...), pareto.csv with all points, the entropy-aligned and the
    temperature-aligned table (tables.md and one CSV each), results.json, and report.html with all of it. The same
    command again, or one with more models, steps or temperatures, computes only what is not there yet.
    """

    checkpoints: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="CHECKPOINT")]
    """Directories of checkpoints, or names on the Hub."""
    names: tuple[str, ...] | None = None
    """What they are called in tables and pictures; the names of their directories unless given."""
    data: str | None = None
    """Held-out text: tales, or a directory that multimdm prepare wrote. Default: tales for models of Tales."""
    steps: tuple[int, ...] = (4, 8, 16)
    """Numbers of network calls K."""
    temperatures: tuple[float, ...] = (0.7, 0.8, 0.9, 1.0, 1.1, 1.2)
    """The points of each curve; 1 is always among them, for the temperature-aligned table, and what the checkpoint
    advises."""
    judge: str | None = None
    """Who scores the samples: tales, a causal language model (directory, Hub name, .gguf file), or an autoregressive
    checkpoint of ours. Default: tales for models of Tales."""
    align_entropy: str = "corpus"
    """Entropy of the entropy-aligned table: nats, corpus for that of held-out text, or none to leave the table out."""
    mauve: str | None = None
    """Also compare samples with held-out text in the features of this network (MAUVE), at every K and temperature: a
    causal language model or an autoregressive checkpoint, named as a judge is. Needs twice --num held-out texts."""
    drawing: Drawing = field(default_factory=Drawing)
    device: Device = "auto"
    precision: PrecisionOption = "auto"
    out: Path = Path("runs/pareto")
    """Directory to write to; made if it is not there."""

    def check(self) -> None:
        """Say what is wrong before a checkpoint is read."""
        if not self.checkpoints:
            raise ValueError("give one or more checkpoints: multimdm pareto CHECKPOINT... [options]")
        if not self.steps or not self.temperatures:
            raise ValueError("--steps and --temperatures must have a number each")
        check_measuring(self.drawing, self.steps, self.temperatures, self.align_entropy, self.mauve)
        if self.judge == "none":
            raise ValueError("--judge must name a judge: there is no front without GenPPL")
        labels = self.labels
        if len(labels) != len(self.checkpoints):
            raise ValueError(f"--names must be as many as checkpoints, {len(self.checkpoints)}; got {len(labels)}")
        if len(set(labels)) != len(labels):
            raise ValueError(f"models must have different names; give them by --names; got {', '.join(labels)}")

    @property
    def labels(self) -> tuple[str, ...]:
        """One label for each checkpoint."""
        if self.names is not None:
            return self.names
        from multimdm.evaluation.settings import label_of

        return tuple(label_of(path) for path in self.checkpoints)


def main(arguments: Sequence[str]) -> None:
    """Parse the options and run."""
    options = network_options(Options, arguments, "multimdm pareto")
    from multimdm.pipeline.ranks import sharing

    with sharing() as ranks:
        opened = _open(options)
        options.out.mkdir(parents=True, exist_ok=True)  # fails now rather than after the work
        evaluations = measured(opened, kept=True)
    if ranks.is_main:
        _write(options, evaluations)


def _open(options: Options) -> list[tuple["Subject", "Plan"]]:
    """Everything that can fail, before any sampling."""
    from multimdm.evaluation.plan import Plan
    from multimdm.evaluation.store import Store

    align = parse_entropy(options.align_entropy)
    store = Store(options.out / "points")
    checkpoints = Checkpoints(options.judge, options.drawing, store, options.device, options.precision)
    opened = []
    for path, label in zip(options.checkpoints, options.labels, strict=True):
        subject = checkpoints.open(path, label, options.steps)
        why = "the entropy-aligned table (or --align-entropy NATS, or none)" if align == "corpus" else None
        text = open_text(options.data, subject, subject.length, why)
        temperatures = tuple(sorted({*options.temperatures, 1.0, subject.temperature}))
        mauve = open_reader(options.mauve, options.data, subject)
        opened.append((subject, Plan(options.steps, temperatures, align, text, trajectories=True, mauve=mauve)))
    _check_comparable([subject for subject, _ in opened])
    return opened


def _check_comparable(subjects: list["Subject"]) -> None:
    """Entropies depend on the length of samples and on what a token is."""
    lengths = {subject.label: subject.length for subject in subjects}
    if len(set(lengths.values())) > 1:
        each = ", ".join(f"{label} {length}" for label, length in lengths.items())
        raise ValueError(f"entropies can be compared at one length only; give --length (the networks' are: {each})")
    tokenizers = {subject.label: subject.model.tokenizer for subject in subjects}
    if len({None if tokenizer is None else tokenizer.fingerprint for tokenizer in tokenizers.values()}) > 1:
        each = ", ".join(f"{label} {tokenizer!r}" for label, tokenizer in tokenizers.items())
        raise ValueError(f"entropies of models with different tokenizers cannot be compared; they are: {each}")


def _write(options: Options, evaluations: list["Evaluation"]) -> None:
    """Pictures, tables, points and the report."""
    from multimdm._files import write_text
    from multimdm.evaluation.store import write_json
    from multimdm.report.beside_gen_ppl import distance_sections
    from multimdm.report.evaluation_report import report
    from multimdm.report.markdown import markdown_text
    from multimdm.report.pareto_figure import save_fronts
    from multimdm.report.tables import aligned_tables, by_judge, comparison_section, csv_text

    out, judge = options.out, evaluations[0].judge
    for path in out.iterdir():
        if _OWN.fullmatch(path.name):  # those of an earlier run with other settings would be read with these
            path.unlink()
    save_fronts(evaluations, options.steps, out)
    parts = []
    for comparison in aligned_tables(evaluations, options.steps):
        write_text(out / f"{comparison.name}.csv", csv_text(comparison))
        parts += [*comparison_section(comparison, by_judge(judge)), *distance_sections(comparison)]
    tables = markdown_text(parts)
    write_text(out / "tables.md", tables)
    write_text(out / "pareto.csv", _points(options, evaluations))
    write_json(out / "results.json", [evaluation.as_data() for evaluation in evaluations])
    write_text(out / "report.html", report(evaluations, options.steps, "Comparison of " + ", ".join(options.labels)))
    print(tables)
    print(f"wrote pictures, tables, points and report.html to {out}")


def _points(options: Options, evaluations: list["Evaluation"]) -> str:
    """All points of all curves as CSV."""
    from multimdm.report.columns import FIELDS, csv_file, csv_row
    from multimdm.report.pareto_figure import at_step

    rows = [
        [evaluation.label, *csv_row(K, m)]
        for evaluation in evaluations
        for K in options.steps
        for m in at_step(evaluation, options.steps, K)
    ]
    return csv_file(["model", *FIELDS], rows)
