"""`multimdm entropy`: the conditional-entropy study, or pictures of the forward processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from multimdm.cli.parsing import parse

_MOST_FORWARD_MASKS = 12
"""More would not be told apart in a picture."""


@dataclass(frozen=True)
class Options:
    """How uncertain the clean token is along coupled paths (Fig. conditional_entropy of the paper).

    Writes entropy.csv (time, curve, value, standard_error) and entropy.png. With --forward, draws the three forward
    processes on one sentence instead (Fig. 1) and writes forward.png.
    """

    masks: tuple[int, ...] | None = None
    """Numbers of masks M, each from 1 to 100. Of the study: 1 2 5 10 20 unless given. With --forward: one number, 3."""
    samples: int = 100_000
    """Draws of (token, noise) per time."""
    seed: int = 0
    """Seed of all draws."""
    out: Path = Path("runs/entropy")
    """Directory to write to; made if it is not there."""
    forward: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Draw the forward processes on one sentence instead."""
    sentence: str = "it was the best of times"
    """With --forward: the sentence, one word per token."""

    @property
    def chosen_masks(self) -> tuple[int, ...]:
        """The numbers of masks, or the usual ones."""
        return self.masks if self.masks is not None else (3,) if self.forward else (1, 2, 5, 10, 20)

    def check(self) -> None:
        """Say what is wrong before any work is done."""
        masks, most = self.chosen_masks, _MOST_FORWARD_MASKS if self.forward else 100
        for M in masks:
            if not 1 <= M <= most:
                raise ValueError(f"--masks must be from 1 to {most}; got {M}")
        if not masks or len(set(masks)) != len(masks) or (self.forward and len(masks) > 1):
            wanted = "one number with --forward" if self.forward else "one or more different numbers"
            raise ValueError(f"--masks must be {wanted}; got {list(masks)}")
        if self.samples < 2:
            raise ValueError(f"--samples must be at least 2; got {self.samples}")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"--seed must be from 0 to 2**63 - 1; got {self.seed}")
        if self.forward and not 2 <= len(self.sentence.split()) <= 12:
            raise ValueError(f"--sentence must have 2 to 12 words; got {len(self.sentence.split())}")
        self.out.mkdir(parents=True, exist_ok=True)  # fails now rather than after the work


def main(arguments: Sequence[str]) -> None:
    """Parse the options and run."""
    options = parse(Options, arguments, "multimdm entropy")
    options.check()
    if options.forward:
        draw_forward(options)
    else:
        run_study(options)


def run_study(options: Options) -> None:
    """The curves, as CSV and figure."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from multimdm._files import write_text
    from multimdm.evaluation.conditional_entropy import Study, run
    from multimdm.report.entropy_figure import entropy_figure, points_csv, study_title
    from multimdm.report.style import save

    study = Study(masks=options.chosen_masks, samples=options.samples, seed=options.seed)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as bar:
        task = bar.add_task("draws", total=study.samples)
        points = list(run(study, lambda done: bar.advance(task, done)))
    write_text(options.out / "entropy.csv", points_csv(points))
    save(entropy_figure(points, study_title(study)), options.out / "entropy.png")
    print(_summary([p for p in points if p.time == 0.5]))
    print(f"wrote {options.out / 'entropy.csv'} and {options.out / 'entropy.png'}")


def draw_forward(options: Options) -> None:
    """The three forward processes on one sentence."""
    from multimdm.report.forward_figure import forward_figure, forward_trajectories
    from multimdm.report.style import save

    trajectories = forward_trajectories(options.sentence, options.chosen_masks[0], options.seed)
    path = options.out / "forward.png"
    save(forward_figure(trajectories), path)
    print(f"wrote {path}")


def _summary(points) -> str:
    """The curves at t = 1/2 as a table."""
    width = max(len(p.curve) for p in points)
    rows = [
        f"  {p.curve:<{width}}  {p.value:.4f}" + (f" ± {p.standard_error:.4f}" if p.standard_error else "")
        for p in points
    ]
    return "\n".join(["entropy of the clean token at t = 1/2, in nats (± one standard error):", *rows])
