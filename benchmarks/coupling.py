"""What noise tells of text in a model of `multimdm couple`, and what it leads to.

    python benchmarks/coupling.py runs/tales-couple/model --out docs/images

coupling-information.png: a lower bound (InfoNCE) of the nats that matched noise tells of its text, against the number
of pairs that are matched together. The bound compares how probable the network at t = 1 holds a text under its own
noise with the mean over fresh noise. It holds for any score, and log f_1 is far too sure of itself; so the score is
c log f_1, with the best c on one half of the texts and the bound on the other.

coupling-related.png: texts that begin with the same noise string, for two strings. How many words two texts share, from
the same noise and from different noise, is printed.
"""

import argparse
import math
from itertools import combinations
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from multimdm import load
from multimdm.data.prepared import Example
from multimdm.evaluation.real_text import real_text
from multimdm.evaluation.recall import log_probs_given_noise
from multimdm.objectives.matching import assign
from multimdm.pipeline import Model
from multimdm.process import MultiMask, Streams
from multimdm.report.boxes import draw_boxes, mask_text
from multimdm.report.pareto_figure import COLOURS
from multimdm.report.style import CLEAN, CORRUPTED, DESIGNATED, GREY, apply_style, save
from multimdm.samplers import Ancestral, Choice, generate, time_grid

SIZES = (2, 8, 32, 128, 512, 2048)
TEXTS = 4096
FRESH = 2048
"""Strings that the own one is compared with; the bound cannot exceed the logarithm of their number."""
SHARPNESS = [2.0**-k for k in range(11)]
"""c: from the network's own down to hardly any preference."""
TEMPERATURE = 0.7
"""At which stories of coupled models have about the entropy of real ones."""


def main() -> None:
    """Draw and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--data", default="tales", help="tales, or a directory that multimdm prepare wrote")
    parser.add_argument("--out", type=Path, default=Path("runs/figures"))
    options = parser.parse_args()
    model = load(options.checkpoint)
    process = model.process
    if not (isinstance(process, MultiMask) and process.tied_noise):
        raise SystemExit(f"{options.checkpoint} is no model of multimdm couple: {process!r}")
    length = model.network.config.max_length
    texts = real_text(options.data, model, length).take(TEXTS)
    fresh = log_probs_given_noise(model, *texts, process.prior((FRESH, length), Streams.spawn(1, FRESH)))
    rows = [(n, *information(model, process, texts, fresh, n)) for n in SIZES if 2 * n <= len(texts.ids)]
    print("| pairs matched together | information, at least | standard error | log n |\n|---|---|---|---|")
    for n, nats, error in rows:
        print(f"| {n:,} | {nats:.2f} nats | {error:.2f} | {math.log(n):.2f} |")
    options.out.mkdir(parents=True, exist_ok=True)
    apply_style()
    save(information_figure(rows), options.out / "coupling-information.png")
    show_related(model, process, options.out, length)


def information(model: Model, process: MultiMask, texts: Example, fresh: Tensor, n: int) -> tuple[float, float]:
    """E[log g(x_0, own x_1) - log mean g(x_0, x_1)], g = f^c, the mean over the own and other strings; its error."""
    own, whole = [], len(texts.ids) // n * n
    for start in range(0, whole, n):
        strings = process.prior((n, texts.ids.shape[1]), Streams.spawn(2, n, start))
        table = log_probs_given_noise(model, texts.ids[start : start + n], texts.valid[start : start + n], strings)
        own.append(table[torch.arange(n), assign(-table)])
    scores = torch.cat([torch.cat(own)[:, None], fresh[:whole]], dim=1)
    half = len(scores) // 2
    c = max(SHARPNESS, key=lambda c: float(bound(c * scores[:half]).mean()))
    values = bound(c * scores[half:])
    return float(values.mean()), float(values.std() / math.sqrt(len(values)))


def bound(scores: Tensor) -> Tensor:
    """InfoNCE of every text: the own string's score is in column 0."""
    return scores[:, 0] - scores.logsumexp(1) + math.log(scores.shape[1])


def information_figure(rows: list[tuple[int, float, float]]) -> Figure:
    """Against the bound that no matching can exceed."""
    figure = Figure(figsize=(5.6, 3.8), layout="constrained")
    axes = figure.subplots()
    sizes = [n for n, _, _ in rows]
    axes.plot(
        sizes, [math.log(n) for n in sizes], color=GREY, linestyle=(0, (4, 3)), label="log n: the most there can be"
    )
    bars = [2 * error for _, _, error in rows]
    axes.errorbar(
        sizes,
        [nats for _, nats, _ in rows],
        bars,
        color=COLOURS[0],
        marker="o",
        capsize=2,
        label="at least, ± 2 standard errors",
    )
    axes.set_xscale("log", base=2)
    axes.set_xlabel("pairs n that are matched together")
    axes.set_ylabel("nats that $x_1$ tells of $x_0$")
    axes.set_title("What matched noise tells of its text")
    axes.legend(fontsize=8)
    return figure


def show_related(model: Model, process: MultiMask, out: Path, length: int, steps: int = 4, texts: int = 64) -> None:
    """Draw texts of one noise string, and print how much texts have in common."""
    strings = process.prior((texts, length), Streams.spawn(3, texts))
    sampler = Ancestral(time_grid("uniform", steps), Choice(temperature=TEMPERATURE))
    given = torch.zeros((texts, length), dtype=torch.long)

    def draw(noise: Tensor, first: int) -> Tensor:
        return generate(
            model.network, process, sampler, given, generator=Streams.spawn(4, texts, first), noise=noise
        ).ids

    groups = [(strings[number], draw(strings[number].expand_as(strings), 0)[:4]) for number in range(2)]
    save(related_figure(model, process, groups, steps), out / "coupling-related.png")
    one, other = draw(strings, 0), draw(strings, texts)
    same = torch.tensor([shared(a, b) for a, b in zip(one, other, strict=True)])
    different = torch.tensor([shared(a, b) for a, b in combinations(one[:24], 2)])
    print(f"\npositions with the same token, K = {steps}, temperature {TEMPERATURE}:")
    print(f"{same.double().mean():.1%} from the same noise, {different.double().mean():.1%} from different noise")


def related_figure(
    model: Model, process: MultiMask, groups: list[tuple[Tensor, Tensor]], steps: int, positions: int = 14
) -> Figure:
    """For every noise string, it and some texts; words that most of the texts have in the same place are darker."""
    figure = Figure(figsize=(0.78 * positions, 0.5 * 6 * len(groups)), layout="constrained")
    panels = figure.subplots(len(groups), 1, squeeze=False)[:, 0]
    for number, (axes, (noise, texts)) in enumerate(zip(panels, groups, strict=True)):
        axes.set_title(f"Noise {number + 1}, and four texts that begin with it, K = {steps}")
        rows = [[(mask_text(int(mask) - process.vocab_size), CORRUPTED) for mask in noise[:positions]]]
        for ids in texts:
            common = (texts == ids).sum(0) > len(texts) / 2
            rows.append(
                [(model.token_name(i), DESIGNATED if c else CLEAN) for i, c in zip(ids.tolist(), common, strict=True)]
            )
        labels = ["noise", *(f"text {n + 1}" for n in range(len(texts)))]
        draw_boxes(axes, labels, [row[:positions] for row in rows])
    return figure


def shared(one: Tensor, other: Tensor) -> float:
    """The share of positions with the same token."""
    return float((one == other).double().mean())


if __name__ == "__main__":
    main()
