"""How much the closed forms of `multimdm.process` save, as ratios in one run.

    python benchmarks/process.py

B = 8, L = 128, V = 50,257, M = 50. "Dense" is the textbook version: it builds a number for every state.
"""

import platform
from collections.abc import Callable

import torch

from memory import peak_megabytes
from multimdm.process import MultiMask, random_balanced
from timing import in_turn

B, L, V, M = 8, 128, 50_257, 50


def _tokens() -> torch.Tensor:
    return torch.randint(0, V, (B, L), generator=torch.Generator().manual_seed(0))


def couple() -> Callable[[], object]:
    """Two points of a shared-Gumbel path, by `couple`."""
    process, x_0 = MultiMask(V, M), _tokens()
    return lambda: process.couple(x_0, [0.4, 0.6])


def couple_dense() -> Callable[[], object]:
    """The same by Gumbels for all V + M states, in float32."""
    process, x_0 = MultiMask(V, M), _tokens()

    def work() -> list[torch.Tensor]:
        gumbels = -torch.empty(B, L, V + M).exponential_().log_()
        return [(process.marginal(x_0, t).log_() + gumbels).argmax(-1) for t in (0.4, 0.6)]

    return work


def reverse() -> Callable[[], object]:
    """x_s given x_t and hypotheses of the clean tokens, by `reverse_sample`."""
    process, clean = MultiMask(V, M), _tokens()
    x_t = process.prior((B, L))
    return lambda: process.reverse_sample(clean, x_t, 0.4, 0.6)


def reverse_dense() -> Callable[[], object]:
    """The same by the kernel over all V + M states and a multinomial draw."""
    process, clean = MultiMask(V, M), _tokens()
    x_t = process.prior((B, L))
    return lambda: torch.multinomial(process.posterior(clean, x_t, 0.4, 0.6).flatten(0, 1), 1)


def _loss_and_gradient(loss: Callable[..., torch.Tensor], process: MultiMask) -> Callable[[], object]:
    x_0 = _tokens().flatten()
    x_t = process.prior((B * L,))
    t = torch.rand(B * L, generator=torch.Generator().manual_seed(1))
    logits = torch.randn(B * L, V, generator=torch.Generator().manual_seed(2), requires_grad=True)

    def work() -> None:
        logits.grad = None
        loss(process, logits.log_softmax(-1), x_0, x_t, t).sum().backward()

    return work


def _ours(process: MultiMask, log_probs, x_0, x_t, t) -> torch.Tensor:
    return process.loss(log_probs, x_0, x_t, t).total


def _plain(process: MultiMask, log_probs, x_0, x_t, t) -> torch.Tensor:
    """Both terms as printed in the paper, left to automatic differentiation."""
    v = process.schedule(t)
    nll = -log_probs.gather(1, x_0[:, None])[:, 0]
    masses = torch.zeros(len(x_0), process.num_masks).index_add(1, process.assignment, log_probs.exp())
    k, m = (x_t - V)[:, None], process.assignment[x_0][:, None]
    beta, low = v.beta[:, None], (v.one_minus_beta / process.num_masks)[:, None]
    psi_theta = 1 - beta / (beta + low) * masses.gather(1, k) + beta / low * masses
    r = low.expand_as(masses).scatter_add(1, m, beta)
    psi = r / r.gather(1, k)
    terms = (psi * (psi / psi_theta).log() + psi_theta - psi).scatter(1, k, 0.0).sum(-1)
    return -v.d_alpha / v.one_minus_alpha * nll - v.d_beta / (process.num_masks * v.beta) * terms


WORK = {
    "couple": couple,
    "couple, dense": couple_dense,
    "reverse_sample": reverse,
    "reverse_sample, dense": reverse_dense,
    "loss, M = 1": lambda: _loss_and_gradient(_ours, MultiMask(V, 1)),
    f"loss, M = {M}": lambda: _loss_and_gradient(_ours, MultiMask(V, M)),
    f"loss, M = {M}, random groups": lambda: _loss_and_gradient(_ours, MultiMask(V, M, None, random_balanced(V, M))),
    f"loss, M = {M}, plain autograd": lambda: _loss_and_gradient(_plain, MultiMask(V, M)),
}


def main() -> None:
    """Measure everything and print a table of ratios."""
    torch.set_num_threads(2)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.machine()}")
    print(f"B = {B}, L = {L}, V = {V:,}, M = {M}; medians\n")
    seconds = {}
    for family in ("couple", "reverse_sample", "loss"):
        seconds |= in_turn({name: make() for name, make in WORK.items() if name.startswith(family)}, rounds=9)
    for name, value in seconds.items():
        print(f"  {name:<30} {1000 * value:10.2f} ms")
    memory = {"couple": peak_megabytes(couple), "couple, dense": peak_megabytes(couple_dense)}
    for name, megabytes in memory.items():
        print(f"  {name:<30} {megabytes:10.1f} MB at the peak")
    base = seconds["loss, M = 1"]
    rows = [
        ("couple: dense time / ours", seconds["couple, dense"] / seconds["couple"], "at least 200"),
        (
            "couple: dense memory / ours (counted as at least 0.1 MB)",
            memory["couple, dense"] / max(memory["couple"], 0.1),
            "at least 100",
        ),
        ("reverse_sample: dense / ours", seconds["reverse_sample, dense"] / seconds["reverse_sample"], "at least 50"),
        (f"logits to gradient: M = {M} / M = 1", seconds[f"loss, M = {M}"] / base, "at most 1.6"),
        ("the same, random groups", seconds[f"loss, M = {M}, random groups"] / base, "-"),
        (f"plain autograd, M = {M} / M = 1", seconds[f"loss, M = {M}, plain autograd"] / base, "-"),
    ]
    print("\n| ratio | measured | aim |\n|---|---|---|")
    for name, ratio, aim in rows:
        print(f"| {name} | {ratio:.3g} | {aim} |")


if __name__ == "__main__":
    main()
