"""`multimdm evaluate`: what a checkpoint is worth."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from multimdm._inert import inert, inert_json
from multimdm.cli.device import Device, NetworkOptions, PrecisionOption, network_options
from multimdm.cli.measuring import (
    WITHOUT,
    Checkpoints,
    check_measuring,
    measured,
    open_reader,
    open_text,
    parse_entropy,
)
from multimdm.evaluation.settings import Drawing

if TYPE_CHECKING:
    from multimdm.evaluation.plan import Evaluation, Plan
    from multimdm.evaluation.real_text import RealText
    from multimdm.evaluation.sampler_likelihood import StateOrder
    from multimdm.evaluation.subject import Subject


@dataclass(frozen=True)
class Options(NetworkOptions):
    """Measure a checkpoint: GenPPL, entropy and variety of samples at several numbers of steps, NELBO and recall.

    Example: multimdm evaluate runs/tales-mdlm/model --steps 4 8 16 --align-entropy corpus --nelbo --out runs/figures

    GenPPL is never printed without its judge and the entropy of the samples, and every figure has its 95% interval
    (the NELBO its standard error). With --out, results.json is written there, and what is finished is not computed
    again. Math and code tasks: multimdm evaluate --harness, with options of its own (--harness --help).
    """

    checkpoint: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CHECKPOINT")]
    """Directory of a checkpoint, or its name on the Hub. perfect:M=20,rho=0.5 is no checkpoint but the exact prediction
    of Tales in place of a network, for any process (M, rho, random, frequency, cosine, tied, uniform): what the process
    and the sampler lose without a network's mistakes."""
    data: str | None = None
    """Held-out text: tales, or a directory that multimdm prepare wrote. Default: tales for a model of Tales."""
    steps: tuple[int, ...] = (4, 8, 16)
    """Numbers of network calls K. Without a number, nothing is sampled (for --nelbo, --recall, --against-perfect)."""
    judge: str | None = None
    """Who scores the samples: tales, a causal language model (directory, Hub name, .gguf file), an autoregressive
    checkpoint of ours, or none. Default: tales for a model of Tales."""
    temperature: float | None = None
    """Temperature tau of the samples: unless given, as the checkpoint advises, else 1."""
    temperatures: tuple[float, ...] | None = None
    """Several temperatures instead: a sweep."""
    align_entropy: str | None = None
    """Also measure at the temperature that gives samples this entropy: nats, or corpus for that of held-out text."""
    nelbo: bool = False
    """Also estimate the NELBO on held-out text; with several masks, also what they tell the network."""
    recall: bool = False
    """Also estimate how probable held-out text is when it is written in one step: what the model has forgotten."""
    against_perfect: bool = False
    """On Tales: also hold predictions against the exact ones, on held-out text and where the sampler really is."""
    likelihood: Literal["confidence", "left_to_right"] | None = None
    """Also compute how probable held-out text is, exactly, under the sampler that reveals the most certain positions
    first, or goes from left to right, at every K and temperature. For models with one mask."""
    mauve: str | None = None
    """Also compare samples with held-out text in the features of this network (MAUVE), at every K and temperature: a
    causal language model or an autoregressive checkpoint, named as a judge is. Needs twice --num held-out texts."""
    sequences: int = 512
    """Held-out sequences for the NELBO, for recall, for likelihoods and against the perfect network."""
    draws: int = 1
    """Noised versions of each, for the NELBO."""
    strings: int = 2048
    """Noise strings that recall is the mean over; with quantile noise, a 32nd of them for every text by itself."""
    teacher: str | None = None
    """The teacher of a model with quantile noise, if it is no longer where the model's lineage says. --nelbo (the bound
    for one step) and --recall ask it."""
    drawing: Drawing = field(default_factory=Drawing)
    device: Device = "auto"
    precision: PrecisionOption = "auto"
    out: Path | None = None
    """Directory for results.json; the same command again goes on where it was stopped."""
    report: bool = False
    """Also write report.html: tables, curves, samples and trajectories in one file. Needs --out."""
    json: bool = False
    """Print JSON instead of tables."""

    @property
    def all_temperatures(self) -> tuple[float, ...] | None:
        """One or several; None if the checkpoint is to say."""
        return self.temperatures if self.temperature is None else (self.temperature,)

    def check(self) -> None:
        """Say what is wrong before the checkpoint is read."""
        if self.temperature is not None and self.temperatures is not None:
            raise ValueError("--temperature and --temperatures exclude each other")
        temperatures = (1.0,) if self.all_temperatures is None else self.all_temperatures
        check_measuring(self.drawing, self.steps, temperatures, self.align_entropy, self.mauve)
        beside = self.nelbo or self.recall or self.against_perfect
        if not self.steps and (not beside or self.align_entropy is not None):
            raise ValueError(
                "--steps must have a number, unless --nelbo, --recall or --against-perfect alone is wanted"
            )
        if self.temperatures == ():
            raise ValueError("--temperatures must have a number")
        for name, value in (("sequences", self.sequences), ("draws", self.draws), ("strings", self.strings)):
            if value < 1:
                raise ValueError(f"--{name} must be at least 1; got {value}")
        if self.against_perfect and self.drawing.law.guidance:
            raise ValueError("--against-perfect compares predictions as they are; leave --guidance out")
        if self.mauve is not None and not self.steps:
            raise ValueError("--mauve needs --steps, the numbers of network calls")
        if self.likelihood is not None and not self.steps:
            raise ValueError("--likelihood needs --steps, the numbers of network calls")
        if self.report and self.out is None:
            raise ValueError("--report needs --out, the directory that it is written to")


def main(arguments: Sequence[str]) -> None:
    """Parse the options and run."""
    if "--harness" in arguments:
        from multimdm.cli import harness

        harness.main(arguments)
        return
    options = network_options(Options, arguments, "multimdm evaluate")
    from multimdm.pipeline.ranks import sharing

    with sharing() as ranks:
        subject, plan = _open(options)
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)  # fails now rather than after the work
        (evaluation,) = measured([(subject, plan)], kept=options.out is not None)
    if ranks.is_main:
        _write(options, evaluation, plan.steps)
        _print(options, evaluation)


def _open(options: Options) -> tuple["Subject", "Plan"]:
    """Everything that can fail, before any sampling."""
    from multimdm.evaluation.plan import Plan
    from multimdm.evaluation.recall import has_recall
    from multimdm.evaluation.shortfall import falls_short
    from multimdm.evaluation.store import Store

    align = parse_entropy(options.align_entropy)
    store = Store(None if options.out is None else options.out / "points")
    judge = options.judge if options.steps else WITHOUT
    subject = Checkpoints(judge, options.drawing, store, options.device, options.precision).open(
        options.checkpoint, None, options.steps
    )
    steps = options.steps if subject.model.process is not None else (subject.length,) * bool(options.steps)
    wanting = [*(["--align-entropy corpus"] if align == "corpus" else []), *(["--recall"] if options.recall else [])]
    if options.recall and not has_recall(subject.model):
        raise ValueError(
            f"--recall is for models of a discrete process, which can write in one step; {subject.label} "
            f"is none: {subject.description}"
        )
    if options.against_perfect and not falls_short(subject.model):
        raise ValueError(
            "--against-perfect is for models of Tales with masks or uniform states, whose noise is not tied to the "
            f"text; {subject.label} is none: {subject.description}"
        )
    if options.nelbo or options.recall or options.teacher is not None:
        subject = subject.with_teacher(options.teacher)
    text = None
    if options.steps or options.recall:
        text = open_text(options.data, subject, subject.length, " and ".join(wanting) or None)
    temperatures = (subject.temperature,) if options.all_temperatures is None else options.all_temperatures
    plan = Plan(
        steps=steps,
        temperatures=temperatures,
        align=align,
        text=text,
        nelbo_text=open_text(options.data, subject, None, "--nelbo") if options.nelbo else None,
        against_perfect=open_text(None, subject, None, None) if options.against_perfect else None,
        sequences=options.sequences,
        draws=options.draws,
        recall_strings=options.strings if options.recall else 0,
        trajectories=options.report,
        likelihood=_likelihood(options, subject, temperatures),
        mauve=open_reader(options.mauve, options.data, subject),
    )
    return subject, plan


def _likelihood(
    options: Options, subject: "Subject", temperatures: tuple[float, ...]
) -> "tuple[StateOrder, RealText] | None":
    """The order and the text, if it is wanted and can be had."""
    from multimdm.evaluation.sampler_likelihood import has_sampler_likelihood

    if options.likelihood is None:
        return None
    if not has_sampler_likelihood(subject.model.process):
        raise ValueError(
            f"--likelihood is for models with one mask, whose noise is not tied to the text; {subject.label} is none: "
            f"{subject.description}"
        )
    if 0 in temperatures:
        raise ValueError("--likelihood needs a --temperature above 0: at 0 a sampler makes one text only")
    text = open_text(options.data, subject, None, "--likelihood")
    assert text is not None
    return options.likelihood, text


def _write(options: Options, evaluation: "Evaluation", steps: tuple[int, ...]) -> None:
    """Write results.json and report.html."""
    if options.out is None:
        return
    from multimdm._files import write_text
    from multimdm.evaluation.store import write_json

    (options.out / "report.html").unlink(missing_ok=True)  # one of other figures would be read with these
    write_json(options.out / "results.json", evaluation.as_data())
    if options.report:
        from multimdm.report.evaluation_report import report

        write_text(options.out / "report.html", report([evaluation], steps, f"Evaluation of {evaluation.label}"))


def _print(options: Options, evaluation: "Evaluation") -> None:
    """Print tables, or JSON."""
    if options.json:
        import json

        print(inert_json(json.dumps(evaluation.as_data(), indent=1, ensure_ascii=False)))
        return
    from multimdm.report.terminal import print_evaluation

    print_evaluation(evaluation)
    if options.out is not None:
        names = "results.json" + (" and report.html" if options.report else "")
        print(inert(f"wrote {names} to {options.out}"))
