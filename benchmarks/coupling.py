"""What noise tells of text in a model of `multimdm couple`, and what it leads to.

    python benchmarks/coupling.py runs/tales-couple/model --out docs/images

information.png: a lower bound (InfoNCE) of the nats that matched noise tells of its text, against the number of pairs
that are matched together. The bound compares how probable the network at t = 1 holds a text under its own noise with
the mean over fresh noise. Then texts are printed: several that begin with the same noise string, for two strings, and
how many words two texts share, from the same noise and from different noise.
"""

import argparse
import math
from itertools import combinations
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from multimdm import load
from multimdm.evaluation.real_text import real_text
from multimdm.objectives.matching import assign, matching_cost
from multimdm.pipeline import Model
from multimdm.process import MultiMask, Streams
from multimdm.process.anchored import shown_with_end
from multimdm.report.pareto_figure import COLOURS
from multimdm.report.style import GREY, apply_style, save
from multimdm.samplers import Ancestral, generate, time_grid

SIZES = (2, 8, 32, 128, 512, 2048)
TEXTS = 2048
FRESH = 2048
"""Strings that the own one is compared with; the bound cannot exceed the logarithm of their number."""


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
    texts = real_text(options.data, model, length).take(TEXTS).ids
    rows = [(n, *information(model, process, texts, n)) for n in SIZES]
    print("| pairs matched together | information, at least | standard error | log n |\n|---|---|---|---|")
    for n, nats, error in rows:
        print(f"| {n:,} | {nats:.2f} nats | {error:.2f} | {math.log(n):.2f} |")
    options.out.mkdir(parents=True, exist_ok=True)
    apply_style()
    save(information_figure(rows), options.out / "information.png")
    print_related(model, process, length)


@torch.no_grad()
def information(model: Model, process: MultiMask, texts: Tensor, n: int) -> tuple[float, float]:
    """E[log f(x_0 | own x_1) - log mean f(x_0 | x_1)], the mean over the own and FRESH other strings; its error."""
    L = texts.shape[1]
    fresh = log_probs(model, process, process.prior((FRESH, L), Streams.spawn(1, FRESH)), texts)
    found = []
    for start in range(0, len(texts), n):
        part = texts[start : start + n]
        table = log_probs(model, process, process.prior((n, L), Streams.spawn(2, n, start)), part)
        own = table[torch.arange(n), assign(-table)]
        both = torch.cat([own[:, None], fresh[start : start + n]], dim=1)
        found.append(own - both.logsumexp(1) + math.log(FRESH + 1))
    values = torch.cat(found).double()
    return float(values.mean()), float(values.std() / math.sqrt(len(values)))


def log_probs(model: Model, process: MultiMask, strings: Tensor, texts: Tensor) -> Tensor:
    """[texts, strings]: log f_1(text | string), normalised."""
    columns = []
    for part in strings.split(64):
        ones = torch.ones(len(part), dtype=torch.float64)
        features = model.network.features(shown_with_end(process, part, part), ones)
        normalisers = torch.stack([model.network.logits(row).float().logsumexp(-1).sum() for row in features])
        columns.append(-matching_cost(model.network, features, texts) - normalisers)
    return torch.cat(columns, dim=1)


def information_figure(rows: list[tuple[int, float, float]]) -> Figure:
    """Against the bound that no matching can exceed."""
    figure = Figure(figsize=(5.6, 3.8), layout="constrained")
    axes = figure.subplots()
    sizes = [n for n, _, _ in rows]
    axes.plot(
        sizes, [math.log(n) for n in sizes], color=GREY, linestyle=(0, (4, 3)), label="log n: the most there can be"
    )
    bars = [2 * error for _, _, error in rows]
    axes.errorbar(sizes, [nats for _, nats, _ in rows], bars, color=COLOURS[0], marker="o", capsize=2, label="at least")
    axes.set_xscale("log", base=2)
    axes.set_xlabel("pairs n that are matched together")
    axes.set_ylabel("nats that x_1 tells of x_0")
    axes.set_title("What matched noise tells of its text\nbars: two standard errors", color=GREY)
    axes.legend(fontsize=8)
    return figure


def print_related(model: Model, process: MultiMask, length: int, steps: int = 2, texts: int = 64) -> None:
    """Texts of one noise string, and how much texts have in common."""
    strings = process.prior((texts, length), Streams.spawn(3, texts))
    sampler = Ancestral(time_grid("uniform", steps))
    given = torch.zeros((texts, length), dtype=torch.long)

    def draw(noise: Tensor, first: int) -> Tensor:
        return generate(
            model.network, process, sampler, given, generator=Streams.spawn(4, texts, first), noise=noise
        ).ids

    tokenizer = model.tokenizer
    assert tokenizer is not None
    for number in range(2):
        print(f"\nnoise {number + 1}, K = {steps}:")
        for ids in draw(strings[number].expand_as(strings), 0)[:3]:
            print(f"  {tokenizer.decode(ids.tolist())}")
    one, other = draw(strings, 0), draw(strings, texts)
    same = torch.tensor([shared(a, b) for a, b in zip(one, other, strict=True)])
    different = torch.tensor([shared(a, b) for a, b in combinations(one[:24], 2)])
    print(f"\npositions with the same token, K = {steps}: {same.double().mean():.1%} from the same noise,")
    print(f"{different.double().mean():.1%} from different noise")


def shared(one: Tensor, other: Tensor) -> float:
    """The share of positions with the same token."""
    return float((one == other).double().mean())


if __name__ == "__main__":
    main()
