"""What a training step costs, and what surrounds it.

    python benchmarks/training.py [--fast]

Steps are forward, loss and backward at the paper's shapes: 12 blocks of width 768, V = 50,257, half of the positions
masked. "Straightforward" is the same network with full [B, L, V] logits, a log-softmax over them and the loss as it is
printed in the paper, left to automatic differentiation; for DUO's NELBO it is the same with the loss that DUO prints,
at all positions, since every one of them counts. Memory is what head and loss take beyond weights and their gradients.
"""

import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from memory import peak_megabytes
from multimdm.models import SIZES, DiT, DiTConfig
from multimdm.models.head import reduce_logits
from multimdm.objectives import Batch, Elbo
from multimdm.process import MultiMask, Process, Streams, Uniform
from timing import in_turn

V, M, ROWS = 50_257, 50, 2048


def network(num_masks: int, vocab_size: int = V) -> DiT:
    """The paper's network."""
    size = SIZES["small"]
    config = DiTConfig(
        vocab_size,
        num_masks,
        hidden_dim=size["hidden_dim"],
        num_blocks=size["num_blocks"],
        num_heads=size["num_heads"],
        cond_dim=size["cond_dim"],
        dropout=0.0,
    )
    return DiT(config).train()


def batch(B: int, L: int) -> Batch:
    """Times at 1/2: half of the positions are masked."""
    ids = torch.randint(0, V, (B, L), generator=torch.Generator().manual_seed(0))
    return Batch(ids, None, torch.full((B,), 0.5, dtype=torch.float64), Streams.spawn(0, B))


def our_step(net: DiT, process: Process, given: Batch) -> Callable[[], None]:
    """Forward, loss and backward through `reduce`."""
    objective = Elbo(process)

    def step() -> None:
        objective(net, given).loss.backward()
        net.zero_grad(set_to_none=True)

    return step


def straightforward_loss(logits: Tensor, x_0: Tensor, x_t: Tensor, t: float) -> Tensor:
    """Eq. (per_coordinate_loss_main) over full tables, for beta = alpha = 1 - t and m_x = x mod M."""
    beta, masked = 1 - t, x_t >= V
    log_probs = logits.float().log_softmax(-1)
    reconstruction = -log_probs.gather(-1, x_0[..., None])[..., 0] / t
    groups = F.pad(log_probs.exp(), (0, -V % M)).unflatten(-1, (-1, M)).sum(-2)
    current, designated = (x_t - V).clamp_min(0), x_0 % M
    A = ((1 - beta) / M) / (beta + (1 - beta) / M)
    m_k = groups.gather(-1, current[..., None])
    psi_theta = A * m_k + (groups.sum(-1, keepdim=True) - m_k - groups) + groups / A
    home = F.one_hot(designated, M).bool()
    same = (designated == current)[..., None]
    psi = torch.where(same, A, torch.where(home, 1 / A, 1.0))
    terms = psi_theta - psi - psi * torch.log(psi_theta / psi)
    terms = terms.masked_fill(F.one_hot(current, M).bool(), 0.0).sum(-1) / (M * beta)
    return ((reconstruction + terms) * masked).sum()


def straightforward_duo_loss(logits: Tensor, x_0: Tensor, x_t: Tensor, t: float) -> Tensor:
    """DUO's NELBO over full tables, alpha = 1 - t: with x̄ = V alpha x + 1 - alpha and i = x_t, it is
    (-alpha' / (V alpha)) [V / x̄θ_i - V / x̄_i + sum_j (x̄_j / x̄_i) (log x̄θ_i - log x̄θ_j + log x̄_j - log x̄_i)].
    """
    alpha = 1 - t
    signal = V * alpha
    x_theta = signal * logits.float().softmax(-1) + (1 - alpha)
    log_theta = x_theta.log()
    same = x_0 == x_t
    clean = signal + 1 - alpha  # x̄ at x_0, 1 - alpha at all others
    at_i = torch.where(same, clean, 1 - alpha)
    theta_i = x_theta.gather(-1, x_t[..., None])[..., 0]
    log_ratio_of_sums = log_theta.gather(-1, x_t[..., None])[..., 0] - at_i.log()
    at_clean = log_ratio_of_sums - log_theta.gather(-1, x_0[..., None])[..., 0] + math.log(clean)
    everywhere = V * log_ratio_of_sums - log_theta.sum(-1) + V * math.log(1 - alpha)
    sum_of_ratios = ((1 - alpha) * everywhere + signal * at_clean) / at_i
    # The sum over all j took log(1 - alpha) for x̄ at x_0, too.
    sum_of_ratios = sum_of_ratios + (1 - alpha) * (math.log(clean) - math.log(1 - alpha)) / at_i
    return ((V / theta_i - V / at_i + sum_of_ratios) / (V * alpha)).sum()


def straightforward_step(
    net: DiT, process: Process, given: Batch, loss: Callable[[Tensor, Tensor, Tensor, float], Tensor]
) -> Callable[[], None]:
    """Full logits at all positions."""

    def step() -> None:
        x_t = process.corrupt(given.ids, given.times, given.generator)
        loss(net(x_t, given.times), given.ids, x_t, 0.5).backward()
        net.zero_grad(set_to_none=True)

    return step


def head_parts() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Features, weight, bias, clean tokens and states: every other position is masked."""
    d = SIZES["small"]["hidden_dim"]
    generator = torch.Generator().manual_seed(0)
    weight = (torch.randn(V, d, generator=generator) * 0.02).requires_grad_()
    x_0 = torch.randint(0, V, (ROWS,), generator=generator)
    x_t = torch.where(torch.arange(ROWS) % 2 == 0, MultiMask(V, M).prior((ROWS,), generator), x_0)
    features = torch.randn(ROWS, d, generator=generator).requires_grad_()
    return features, weight, torch.zeros(V, requires_grad=True), x_0, x_t


def our_head() -> Callable[[], object]:
    """Head and loss through `reduce`."""
    features, weight, bias, x_0, x_t = head_parts()
    process, half = MultiMask(V, M), torch.tensor(0.5, dtype=torch.float64)
    active = process.active(x_t)
    clean, state = x_0[active], x_t[active]

    def reduce(logits: Tensor, part: slice) -> Tensor:
        return process.loss(logits.log_softmax(-1), clean[part], state[part], half).total.sum()

    def work() -> None:
        features.grad = weight.grad = bias.grad = None
        loss = reduce_logits(features[active], weight, bias, reduce)
        assert isinstance(loss, Tensor)
        loss.backward()

    return work


def straightforward_head() -> Callable[[], object]:
    """Head and loss over the full table."""
    features, weight, bias, x_0, x_t = head_parts()

    def work() -> None:
        features.grad = weight.grad = bias.grad = None
        straightforward_loss(F.linear(features, weight, bias), x_0, x_t, 0.5).backward()

    return work


def overhead(steps: int) -> dict[str, float]:
    """Where the time of the tiny recipe goes, in seconds."""
    from multimdm.training.building import pretrain_job
    from multimdm.training.loop import train
    from multimdm.training.recipes import dump_recipe, parse_recipe, read_recipe
    from multimdm.training.schema import PretrainRecipe
    from multimdm.training.shipped import find_recipe

    data = dump_recipe(read_recipe(find_recipe("tales-multimdm-rand"), PretrainRecipe))
    data["train"]["steps"] = steps
    data["log"] |= {"validate_every": 0, "validation_sequences": 2, "sample_every": 0}
    with tempfile.TemporaryDirectory() as folder:
        job = pretrain_job(parse_recipe(data, PretrainRecipe, "tales-multimdm-rand"), "overhead")
        return train(job, Path(folder) / "run", quiet=True).seconds


def main() -> None:
    """Measure and print the ratios."""
    fast = "--fast" in sys.argv[1:]
    torch.set_num_threads(2)
    B, L, rounds = (1, 32, 1) if fast else (4, 128, 7)
    given = batch(B, L)
    many, one, uniform = MultiMask(V, M), MultiMask(V, 1), Uniform(V)
    wide, single, all_tokens = network(M), network(1), network(0)
    times = in_turn(
        {
            "MultiMDM, M = 50": our_step(wide, many, given),
            "MDLM": our_step(single, one, given),
            "straightforward, M = 50": straightforward_step(wide, many, given, straightforward_loss),
            "DUO": our_step(all_tokens, uniform, given),
            "straightforward, DUO": straightforward_step(all_tokens, uniform, given, straightforward_duo_loss),
        },
        rounds,
    )
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; B = {B}, L = {L}, V = {V:,}; medians")
    for name, seconds in times.items():
        print(f"  {name:<24} {1000 * seconds:8.1f} ms")
    del wide, single, all_tokens
    # The gradient of the weight was freed before the work began and is there at its peak; it is not counted.
    gradients = 4 * V * SIZES["small"]["hidden_dim"] / 2**20
    ours, straightforward = (peak_megabytes(make) - gradients for make in (our_head, straightforward_head))
    print(f"  head and loss, {ROWS} positions: {ours:.0f} MB, straightforward {straightforward:.0f} MB")
    seconds = overhead(20 if fast else 500)
    around = sum(seconds.get(part, 0.0) for part in ("data", "log", "save"))
    print("  " + ", ".join(f"{part} {value:.2f} s" for part, value in seconds.items()))
    print("\n| ratio | measured | aim |\n|---|---|---|")
    step = times["MultiMDM, M = 50"]
    print(f"| step: MultiMDM, M = 50 / MDLM | {step / times['MDLM']:.3f} | at most 1.10 |")
    print(f"| step: ours / straightforward | {step / times['straightforward, M = 50']:.3f} | at most 0.85 |")
    print(f"| step: DUO, ours / straightforward | {times['DUO'] / times['straightforward, DUO']:.3f} | at most 0.95 |")
    print(f"| memory of head and loss: ours / straightforward | {ours / straightforward:.3f} | at most 0.1 |")
    print(f"| data, logging and checkpoints / step, tiny recipe | {around / seconds['step']:.3f} | at most 0.03 |")


if __name__ == "__main__":
    main()
