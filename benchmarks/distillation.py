"""What a step of distillation costs beside one of pretraining, and what the coupled pair costs in it.

    python benchmarks/distillation.py [--fast]

Steps are those of one network and batch at the paper's shapes: 12 blocks of width 768, V = 50,257. Pretraining is
forward, loss and backward; consistency adds the teacher's forward pass, the divergence over V and the pair of states;
SDTT adds two passes of the teacher and its draws.
"""

import copy
import sys
import time

import torch

from multimdm.objectives import Batch, Consistency, ConsistencySettings, Elbo, Sdtt, SdttSettings
from multimdm.objectives.coupling import couple
from multimdm.process import MultiMask
from timing import in_turn
from training import M, V, batch, network


def main() -> None:
    """Print times and ratios."""
    fast = "--fast" in sys.argv
    B, L, rounds = (1, 64, 1) if fast else (4, 128, 5)
    student = network(M)
    teacher = copy.deepcopy(student).eval().requires_grad_(False)
    process, given = MultiMask(V, M), batch(B, L)
    objectives = {
        "pretraining": Elbo(process),
        "consistency": Consistency(process, ConsistencySettings(delta=2.0**-7, rounds=1), teacher),
        "SDTT": Sdtt(process, SdttSettings(delta=2.0**-7, rounds=1), teacher),
    }

    def step(name: str) -> None:
        objectives[name](student, given).loss.backward()
        student.zero_grad(set_to_none=True)

    seconds = in_turn({name: lambda name=name: step(name) for name in objectives}, rounds)
    pair = _pair_seconds(process, given)
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads; B = {B}, L = {L}, V = {V:,}, M = {M}; medians"
    )
    for name, value in {**seconds, "the coupled pair": pair}.items():
        print(f"  {name:<18}{value * 1e3:>10.1f} ms")
    print("\n| ratio | measured | aim |\n|---|---|---|")
    print(
        f"| consistency step / pretraining step | {seconds['consistency'] / seconds['pretraining']:.3f} | at most 1.6 |"
    )
    print(f"| coupled pair / consistency step | {pair / seconds['consistency']:.5f} | under 0.01 |")
    print(f"| SDTT step / pretraining step | {seconds['SDTT'] / seconds['pretraining']:.3f} | - |")


def _pair_seconds(process: MultiMask, given: Batch) -> float:
    """Mean of many draws, since one takes less than a millisecond."""
    s, t, draws = given.times - 2.0**-7, given.times, 200
    start = time.perf_counter()
    for _ in range(draws):
        couple(process, given.ids, s, t, "gumbel", given.generator)
    return (time.perf_counter() - start) / draws


if __name__ == "__main__":
    main()
