"""What quantile noise tells, and what it is decoded to, as pictures.

    python benchmarks/quantile.py runs/tales-quantile --teacher runs/tales-ar/model --out docs/images

The first argument is the directory of a run of `multimdm couple` on Tales (its model and its metrics.jsonl).

quantile-chance.png: what is left to chance, H(x_0^l | x_0^{<l}, x_1^l), against the number of masks.
quantile-decoded.png: one noise string decoded in 1, 2, 4 and 8 calls, and by the teacher from left to right.
quantile-prompts.png: the same numbers after three prompts.
quantile-draft.png: the cross-entropy at t = 1 in the course of training, and against the position in the text.

Printed: how real stories are completed after their first third, and how their middle third is filled in, K = 4. A
prompt leaves the numbers behind it uniform; tokens behind a gap do not, so that gaps are filled worse.
"""

import argparse
import json
from pathlib import Path

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from torch import Tensor

from multimdm import load
from multimdm.data.tales import Tales
from multimdm.evaluation.one_step import OneStep
from multimdm.evaluation.quantile_models import open_quantile_noise
from multimdm.evaluation.teachers import QuantileTeacher, TalesTeacher
from multimdm.evaluation.teachers.base import cells_of_text, order_of
from multimdm.pipeline import Model
from multimdm.process import MultiMask, Streams
from multimdm.process.quantile import Order, buckets, left_to_chance, numbers
from multimdm.report.forward_figure import draw_boxes
from multimdm.report.pareto_figure import COLOURS
from multimdm.report.style import CLEAN, CORRUPTED, DESIGNATED, GREY, apply_style, save
from multimdm.samplers.choice import Choice
from multimdm.samplers.confidence import Confidence
from multimdm.samplers.loop import generate

MASKS = (2, 5, 20, 64, 256, 1024)
STORIES = 256
CALLS = (1, 2, 4, 8)
PROMPTS = ("Lily raced to the harbor", "Tom came to the zoo", "One rainy day")
ACROSS = 15
"""Positions that fit into a line of a picture."""


def main() -> None:
    """Draw and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--teacher", required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/figures"))
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    model = load(options.run / "model")
    process = model.process
    if not (isinstance(process, MultiMask) and process.noise_shown) or model.tokenizer is None:
        raise SystemExit(f"{options.run} is no run of multimdm couple with noise that is shown: {process!r}")
    tales = Tales(model.network.config.max_length)
    noise = open_quantile_noise(model, tales.length, options.teacher)  # in the order that the model has learnt to read
    teacher, order = noise.teacher, noise.order
    options.out.mkdir(parents=True, exist_ok=True)
    apply_style()
    save(chance_figure(tales), options.out / "quantile-chance.png")
    u = Streams.spawn(options.seed, 1).uniform((1, tales.length), "cpu")
    save(decoded_figure(model, process, teacher, u, order), options.out / "quantile-decoded.png")
    save(prompts_figure(model, process, u), options.out / "quantile-prompts.png")
    by_place = draft_by_position(model, process, teacher, tales, order)
    print(f"cross-entropy at t = 1: {float(by_place.mean()):.3f} nats per token of {STORIES} stories")
    save(draft_figure(options.run / "metrics.jsonl", by_place), options.out / "quantile-draft.png")
    print_given(model, process, tales)


def chance_figure(tales: Tales) -> Figure:
    """With the source's own conditionals, for every order of the vocabulary."""
    stories = tales.sample(STORIES, torch.Generator().manual_seed(0))
    orders: dict[str, Order] = {"id": "id", "probable": "probable", "similar": order_of(TalesTeacher(tales), "similar")}
    figure = Figure(figsize=(5.6, 3.8), layout="constrained")
    axes = figure.subplots()
    for colour, (name, order) in zip(COLOURS, orders.items(), strict=False):
        totals = torch.zeros(len(MASKS), dtype=torch.float64)
        for probs in tales.conditionals(stories):
            totals += torch.stack([left_to_chance(probs, M, order).mean() for M in MASKS])
        nats = (totals / tales.length).tolist()
        axes.plot(MASKS, nats, color=colour, marker="o", label=f"order: {name}")
        print(
            f"left to chance, order {name}: " + ", ".join(f"M = {M}: {n:.3f}" for M, n in zip(MASKS, nats, strict=True))
        )
    axes.axhline(tales.entropy_per_token, color=GREY, linestyle=(0, (4, 3)), label="one mask: all of the entropy")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(MASKS, [f"{M:,}" for M in MASKS])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("masks M")
    axes.set_ylabel("nats per token left to chance")
    axes.set_title("What the masks leave open to one who reads from left to right")
    axes.legend(fontsize=8)
    return figure


def decode(model: Model, process: MultiMask, u: Tensor, steps: int, prompt: list[int] | None = None) -> Tensor:
    """The text of given numbers, by confidence at temperature 0."""
    noise = process.vocab_size + buckets(u, process.num_masks)
    given, fixed = torch.zeros_like(noise), torch.zeros_like(noise, dtype=torch.bool)
    if prompt is not None:
        given[0, : len(prompt)] = torch.tensor(prompt)
        fixed[0, : len(prompt)] = True
    step = Confidence(steps, Choice(temperature=0))
    return generate(model.network, process, step, given, fixed, generator=Streams.spawn(0, 1), x_1=noise).ids[0]


def decoded_figure(model: Model, process: MultiMask, teacher: QuantileTeacher, u: Tensor, order: Order) -> Figure:
    """Tokens that the teacher would have drawn are darker."""
    target = teacher.write(u, order)[0]
    texts = {f"{K} call{'s' * (K > 1)}": decode(model, process, u, K) for K in CALLS}
    rows = [[(f"{number:.2f}", CORRUPTED) for number in u[0].tolist()]]
    for ids in [*texts.values(), target]:
        same = (ids == target).tolist()
        rows.append(
            [(model.token_name(i), DESIGNATED if s else CLEAN) for i, s in zip(ids.tolist(), same, strict=True)]
        )
    for name, ids in texts.items():
        print(f"{name}: {model.tokenizer.decode(ids.tolist()) if model.tokenizer else ''}")
        print(f"    as the teacher: {float((ids == target).double().mean()):.0%} of the positions")
    print(f"teacher: {model.tokenizer.decode(target.tolist()) if model.tokenizer else ''}")
    title = "The same noise in 1, 2, 4 and 8 calls, and by the teacher (dark: as the teacher)"
    return _boxes(["numbers", *texts, "teacher"], rows, title, 3 * ACROSS)


def prompts_figure(model: Model, process: MultiMask, u: Tensor, steps: int = 4) -> Figure:
    """One string of numbers continues three beginnings."""
    rows = [[(f"{number:.2f}", CORRUPTED) for number in u[0].tolist()]]
    for prompt in PROMPTS:
        assert model.tokenizer is not None
        start = model.tokenizer.encode(prompt)
        ids = decode(model, process, u, steps, start).tolist()
        rows.append([(model.token_name(i), DESIGNATED if p < len(start) else CLEAN) for p, i in enumerate(ids)])
        print(f"prompt: {model.tokenizer.decode(ids)}")
    labels = ["numbers", *(f"prompt {n + 1}" for n in range(len(PROMPTS)))]
    return _boxes(labels, rows, f"The same numbers after three prompts (dark), K = {steps}", 2 * ACROSS)


def print_given(model: Model, process: MultiMask, tales: Tales, steps: int = 4) -> None:
    """Exact perplexity and validity of whole stories of which some parts were given."""
    stories = tales.sample(STORIES, torch.Generator().manual_seed(3))
    place = torch.arange(tales.length)
    first, last = place < tales.length // 3, place >= 2 * tales.length // 3
    step = Confidence(steps, Choice(temperature=0))
    given = {
        "nothing given": first & last,
        "the first third given": first,
        "all but the middle third given": first | last,
    }
    print(f"\nstories of which K = {steps} calls make what is not given:")
    print("| | GenPPL | valid sentences | valid stories |\n|---|---|---|---|")
    for name, kept in given.items():
        fixed = kept.expand_as(stories)
        ids = generate(model.network, process, step, stories, fixed, generator=Streams.spawn(4, STORIES)).ids
        sentences = tales.valid_sentences(ids)
        share = float(sentences.valid.sum() / sentences.total.sum())
        perplexity = float(torch.exp(-tales.log_prob(ids).mean() / tales.length))
        print(f"| {name} | {perplexity:.2f} | {share:.1%} | {float(tales.valid(ids).double().mean()):.1%} |")


def _boxes(labels: list[str], rows: list[list[tuple[str, str]]], title: str, positions: int) -> Figure:
    """Rows that are as long as the text, in lines of a page."""
    lines = range(0, positions, ACROSS)
    figure = Figure(figsize=(0.74 * ACROSS, 0.48 * len(rows) * len(lines)), layout="constrained")
    panels = figure.subplots(len(lines), 1, squeeze=False)[:, 0]
    for axes, first in zip(panels, lines, strict=True):
        blank = [("", "white")] * max(0, first + ACROSS - positions)
        draw_boxes(axes, labels, [row[first : first + ACROSS][: positions - first] + blank for row in rows])
    figure.suptitle(title)
    return figure


@torch.no_grad()
def draft_by_position(model: Model, process: MultiMask, teacher: QuantileTeacher, tales: Tales, order: Order) -> Tensor:
    """-log f(x_0^l | x_1) at t = 1, averaged over stories: [L]."""
    ids = tales.sample(STORIES, torch.Generator().manual_seed(1))
    cells = cells_of_text(teacher, ids, None, order)
    noise = process.vocab_size + buckets(numbers(cells, Streams.spawn(2, STORIES)), process.num_masks)
    return -OneStep(model.network, process, ids).token_log_probs(noise).mean(0)


def draft_figure(metrics: Path, by_place: Tensor) -> Figure:
    """Two panels: against steps of training, and against the position."""
    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    records = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    course = [(one["step"], one["draft"]) for one in records if "draft" in one]
    left.plot([step for step, _ in course], [value for _, value in course], color=COLOURS[0])
    left.set_xlabel("training step")
    left.set_ylabel("nats per token")
    left.set_title("Cross-entropy at t = 1: the price of one call")
    right.plot(range(1, len(by_place) + 1), by_place.tolist(), color=COLOURS[1])
    right.set_xlabel("position in the story")
    right.set_title("The same by position, after training")
    return figure


if __name__ == "__main__":
    main()
