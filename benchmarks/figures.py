"""The figures of docs/method.md that no command makes, and its table.

    python benchmarks/figures.py --out docs/images

loss.png: both terms of the loss over time, for one token and the exact prediction. paths.png: shared-Gumbel paths
beside the forward chain. The table tells what K steps give, by the exact prediction and by ideal distillation, for two
positions that must be equal: no network and no training.
"""

import argparse
from itertools import groupby, pairwise
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from multimdm.process import MultiMask
from multimdm.report.forward_figure import explain_boxes, mask_text
from multimdm.report.pareto_figure import COLOURS
from multimdm.report.style import CLEAN, CORRUPTED, DESIGNATED, GREY, apply_style, save
from multimdm.samplers import time_grid

WORDS = ["it", "was", "the", "best", "of", "times"]


def main() -> None:
    """Draw and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/figures"))
    parser.add_argument("--draws", type=int, default=100_000, help="paths per token and pair of times, for the table")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    apply_style()
    save(loss_figure(), options.out / "loss.png")
    save(paths_figure(seed=1944), options.out / "paths.png")
    print_pairs(options.draws)


# -------------------------------------------------------------------- loss.png


def loss_figure(vocab_size: int = 100, masks: tuple[int, ...] = (1, 5, 20)) -> Figure:
    """The terms of Eq. (per_coordinate_loss_main), averaged over a Zipf token and its state."""
    prior = torch.arange(1, vocab_size + 1, dtype=torch.float64) ** -1.2
    prior /= prior.sum()
    times = torch.linspace(0, 1, 402, dtype=torch.float64)[1:-1]
    figure = Figure(figsize=(9.0, 3.5), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for M, colour in zip(masks, COLOURS, strict=False):
        densities = torch.stack([loss_density(MultiMask(vocab_size, M), prior, t) for t in times])
        for axes, density in zip(panels, densities.T, strict=True):
            axes.plot(times, density, color=colour, label=f"M = {M}, area {float(density.mean()):.2f}")
    for axes, title in zip(panels, ("reconstruction", "identification"), strict=True):
        axes.set(title=title, xlabel="time t", xlim=(0, 1))
        axes.legend(fontsize=8)
    panels[0].set_ylabel("nats per unit of time")
    panels[0].set_ylim(bottom=0)
    entropy = float(-(prior * prior.log()).sum())
    figure.suptitle(
        f"One Zipf(1.2) token, V = {vocab_size}, its entropy {entropy:.2f} nats; exact prediction, rho = 1",
        fontsize=10,
        color=GREY,
    )
    return figure


def loss_density(process: MultiMask, prior: Tensor, t: Tensor) -> Tensor:
    """Both terms at t, averaged over the token and its mask, for the posterior of the token given its mask."""
    V, M = process.vocab_size, process.num_masks
    joint = prior[:, None] * process.marginal(torch.arange(V), t)[:, V:]  # [V, M]
    log_posterior = (joint / joint.sum(0)).log().T  # [M, V]
    token, mask = torch.meshgrid(torch.arange(V), torch.arange(M), indexing="ij")
    terms = process.loss(log_posterior[mask], token, V + mask, t)
    return torch.stack([(joint * term).sum() for term in (terms.reconstruction, terms.identification)])


# ------------------------------------------------------------------- paths.png


def paths_figure(seed: int, num_masks: int = 3, ticks: int = 500) -> Figure:
    """One path per word: with shared Gumbels, and by the forward chain."""
    process = MultiMask(len(WORDS), num_masks)
    x_0, times = torch.arange(len(WORDS)), torch.linspace(0, 1, ticks + 1, dtype=torch.float64)
    shared = process.couple(x_0, times, torch.Generator().manual_seed(seed))
    chain, generator = [x_0], torch.Generator().manual_seed(seed)
    for s, t in pairwise(times.tolist()):
        chain.append(process.transition_sample(chain[-1], s, t, generator))
    figure = Figure(figsize=(9.6, 3.1), layout="constrained")
    panels = figure.subplots(1, 2)
    panels[0].set_title("Shared-Gumbel paths: at most two jumps")
    panels[1].set_title("The forward chain: the same law at every time")
    for axes, states in zip(panels, (shared, torch.stack(chain)), strict=True):
        _draw_paths(axes, process, x_0, states)
    explain_boxes(figure, "other mask")
    return figure


def _draw_paths(axes, process: MultiMask, x_0: Tensor, states: Tensor) -> None:
    """A bar per position, cut where the state changes."""
    axes.set(xlabel="time t", xlim=(0, 1), ylim=(len(x_0) - 0.5, -0.5))
    axes.grid(visible=False)
    axes.tick_params(left=False, labelleft=False)
    axes.spines["left"].set_visible(False)
    last = len(states)
    for row, token in enumerate(x_0.tolist()):
        home = int(process.designated_mask(x_0[row]))
        start = 0
        for state, run in groupby(states[:, row].tolist()):
            left, start = start, start + len(list(run))
            colour = CLEAN if state == token else DESIGNATED if state == home else CORRUPTED
            width = (start - left) / last
            axes.barh(row, width, 0.74, left / last, color=colour, edgecolor="black", linewidth=0.5)
            text = WORDS[token] if state == token else mask_text(state - process.vocab_size)
            if width > 0.016 * len(text if state == token else "[M1]"):
                axes.text((left / last) + width / 2, row, text, ha="center", va="center", fontsize=8)


# --------------------------------------------------------------- two positions


def print_pairs(
    draws: int, vocab_size: int = 4, masks: tuple[int, ...] = (1, 2, 4), steps: tuple[int, ...] = (1, 2, 4, 8, 16)
) -> None:
    """Data: two equal tokens, any of V. The share of samples whose tokens are equal, against the number of steps."""
    print("| prediction | " + " | ".join(f"K = {K}" for K in steps) + " |\n|---|" + "---|" * len(steps))
    for M in masks:
        pairs = Pairs(MultiMask(vocab_size, M))
        for name, prediction in (("exact", pairs.exact), ("distilled", pairs.distilled(64, draws).__getitem__)):
            shares = [pairs.share_equal(time_grid("uniform", K), prediction) for K in steps]
            print(f"| M = {M}, {name} | " + " | ".join(f"{share:.1%}" for share in shares) + " |")


class Pairs:
    """Two positions that hold the same token, uniform on V; predictions are tables [S, S, 2, V]."""

    def __init__(self, process: MultiMask) -> None:
        self.process, self.V, self.S = process, process.vocab_size, process.num_states
        states = torch.arange(self.S)
        self.states = torch.stack(torch.meshgrid(states, states, indexing="ij"), dim=-1)

    def exact(self, t: float) -> Tensor:
        """p(x_0^l | x_t). The tokens are equal, so it is the same for both positions."""
        likelihood = self.process.marginal(torch.arange(self.V), torch.tensor(t, dtype=torch.float64))
        joint = torch.einsum("ax,ay->xya", likelihood, likelihood)
        total = joint.sum(-1, keepdim=True)
        posterior = torch.where(total > 0, joint / total, 1 / self.V)  # what cannot occur gets any prediction
        return self._visible(torch.stack([posterior, posterior], dim=2))

    def distilled(self, grid: int, draws: int) -> dict[float, Tensor]:
        """f_t = E[f_s | x_t] with s = t - 1/grid, from the data upwards: what forward KL has as its minimiser."""
        generator, tokens = torch.Generator().manual_seed(0), torch.arange(self.V)
        f = self.exact(0.0)
        tables = {0.0: f}
        for s, t in pairwise([k / grid for k in range(grid + 1)]):
            x_s, x_t = self.process.couple(tokens.repeat_interleave(draws), [s, t], generator)
            code = (tokens.repeat_interleave(draws) * self.S + x_s) * self.S + x_t
            law = torch.bincount(code, minlength=self.V * self.S**2).view(self.V, self.S, self.S).double() / draws
            mass = torch.einsum("aik,ajl->kl", law, law)[..., None, None]
            summed = torch.einsum("aik,ajl,ijpc->klpc", law, law, f)
            f = self._visible(torch.where(mass > 0, summed / mass, 1 / self.V))
            tables[t] = f
        return tables

    def share_equal(self, times: tuple[float, ...], prediction) -> float:
        """Of samples by Alg. (few_step_generation) on these times, computed over all pairs of states."""
        one = self.process.marginal(torch.tensor(0), torch.tensor(1.0, dtype=torch.float64))
        law = one[:, None] * one
        for t, s in pairwise(times):
            moved = self.process.reverse(prediction(t), self.states, s, t)
            law = torch.einsum("xy,xyi,xyj->ij", law, moved[:, :, 0], moved[:, :, 1])
        return float(law.diagonal()[: self.V].sum())

    def _visible(self, table: Tensor) -> Tensor:
        """A visible token is known: the boundary condition of Sec. 3.3."""
        known, table = torch.eye(self.V, dtype=table.dtype), table.clone()
        table[: self.V, :, 0] = known[:, None]
        table[:, : self.V, 1] = known[None]
        return table


if __name__ == "__main__":
    main()
