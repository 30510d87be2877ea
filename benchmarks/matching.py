"""What matching texts with noise costs beside the training steps that it serves.

    python benchmarks/matching.py [--fast]

A step of `multimdm couple` at batch 512 and length 64 (forward, loss, backward and update), against the share of a
refresh that falls on it: the network on 512 noise strings, and `reuse` times the costs of 512 texts and an assignment.
The network is the tiny one of Tales: the smaller it is, the more the assignment weighs.
"""

import sys
import time

import torch

from multimdm.models import SIZES, DiT, DiTConfig
from multimdm.objectives import Batch, Coupled, MatchingSettings, stratified_times
from multimdm.objectives.matching import assign, matching_cost
from multimdm.process import MultiMask, Streams
from multimdm.process.anchored import shown_with_end
from timing import in_turn

V, M, L = 404, 20, 64
_STRINGS = 32
"""As in training: noise strings that the network runs on at once."""


def main() -> None:
    """Print times and ratios."""
    fast = "--fast" in sys.argv
    n, rounds = (64, 1) if fast else (512, 3)
    torch.manual_seed(0)
    config = DiTConfig(vocab_size=V, num_masks=M, max_length=L, dropout=0.0, noise_rows=M, **SIZES["tiny"])  # pyright: ignore[reportArgumentType]
    network = DiT(config)
    for weights in network.parameters():
        torch.nn.init.normal_(weights, std=0.1)  # a new head is zero, and all costs would be equal
    process, reuse = MultiMask(V, M).tied(noise_shown=True), MatchingSettings().reuse
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.0)
    ids = torch.randint(0, V, (n, L))
    strings = process.prior((n, L))
    features = _features(network, process, strings)
    cost = matching_cost(network, features, ids)

    def step() -> None:
        batch = Batch(ids, None, stratified_times(n), Streams.spawn(0, n), noise=strings)
        (Coupled(process)(network, batch).loss / ids.numel()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    works = {
        "training step": step,
        "network on the noise": lambda: _features(network, process, strings),
        "costs of one set": lambda: matching_cost(network, features, ids),
        "exact assignment": lambda: assign(cost),
        "greedy assignment": lambda: assign(cost, "greedy"),
    }
    seconds = in_turn(works, rounds)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; n = {n}, L = {L}, V = {V}, M = {M}; medians")
    for name, value in seconds.items():
        print(f"  {name:<22}{value * 1e3:>10.1f} ms")
    per_set = seconds["costs of one set"] + seconds["exact assignment"]
    print("\n| ratio | measured | aim |\n|---|---|---|")
    for sets in sorted({1, reuse}):
        share = (seconds["network on the noise"] / sets + per_set) / seconds["training step"]
        print(f"| matching / training step, reuse {sets} | {share:.3f} | {'under 0.15' if sets == reuse else '-'} |")
    if not fast:
        _large_sets()


def _features(network: DiT, process: MultiMask, strings: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        parts = [network.features(shown_with_end(process, part, part), 1.0) for part in strings.split(_STRINGS)]
    return torch.cat(parts)


def _large_sets() -> None:
    """Assignments of more pairs: how the solvers grow."""
    print("\n| n | exact | greedy | sum of matched logits: greedy / exact |\n|---|---|---|---|")
    for n in (512, 1024, 2048, 4096):
        cost, taken, totals = torch.randn(n, 64) @ torch.randn(64, n), {}, {}
        for solver in ("exact", "greedy"):
            start = time.perf_counter()
            columns = assign(cost, solver)
            taken[solver] = time.perf_counter() - start
            totals[solver] = float(cost[torch.arange(n), columns].sum())
        ratio = totals["greedy"] / totals["exact"]
        print(f"| {n:,} | {taken['exact'] * 1e3:.0f} ms | {taken['greedy'] * 1e3:.0f} ms | {ratio:.3f} |")


if __name__ == "__main__":
    main()
