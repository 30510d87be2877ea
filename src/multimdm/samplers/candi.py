"""CANDI's cached sampler: hidden vectors move towards hypotheses of their tokens, and become them one by one.

Shapes: B sequences of L positions.
"""

from dataclasses import replace
from itertools import pairwise

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from multimdm.process import Generator, Hybrid
from multimdm.process.draws import uniform
from multimdm.process.hybrid import HybridState
from multimdm.samplers.batch import Network
from multimdm.samplers.choice import USUAL, Choice
from multimdm.samplers.loop import Generated, Watch, free_positions
from multimdm.samplers.trace import Trace


@torch.no_grad()
def generate_candi(
    network: Network,
    process: Hybrid,
    grid: tuple[float, ...],
    given: Int64[Tensor, "B L"],
    fixed: Bool[Tensor, "B L"] | None = None,
    valid: Bool[Tensor, "B L"] | None = None,
    choice: Choice = USUAL,
    greedy_last: bool = False,
    generator: Generator = None,
    trace: bool = False,
    watch: Watch | None = None,
) -> Generated:
    """Samples from noise at t = 1 along the grid to t = 0: one network call per step, the last leaves nothing hidden.

    Ids of `given` are kept where `fixed` says so and where `valid` says padding. In the trace, V stands for what is
    hidden. A sequence without hidden positions is counted as finished.
    """
    free = free_positions(process, given, fixed, valid, generator)
    start = process.prior(given.shape, generator, given.device)
    state = HybridState(torch.where(free, start.x, given), start.latent)
    calls = torch.zeros(len(given), dtype=torch.long, device=given.device)
    steps = len(grid) - 1
    states = [state.x]
    for k, (t, s) in enumerate(pairwise(grid)):
        hidden = process.hidden(state)
        calls += hidden.any(1)
        here = replace(choice, greedy=True) if greedy_last and k == steps - 1 else choice
        # x_0 ~ p^theta(. | x_t), then x_s given x_t and x_0
        clean = _hypotheses(network, process, state, s, t, valid, here, generator)
        state = process.reverse_sample(clean, state, s, t, generator)
        states.append(state.x)
        if watch is not None:
            watch(k + 1, steps, state.x)
    return Generated(state.x, calls, _trace_of(states, grid, process) if trace else None)


def _hypotheses(
    network: Network,
    process: Hybrid,
    state: HybridState,
    s: float,
    t: float,
    valid: Tensor | None,
    choice: Choice,
    generator: Generator,
) -> Int64[Tensor, "B L"]:
    """Clean tokens for the hidden positions, by one number each; elsewhere the tokens that are there.

    As in the published sampler the network is given the time t and shown vectors scaled for the noise at s: its steps
    take away more noise than the schedule does, so that this is nearer to what is left.
    """
    hidden = process.hidden(state)
    u = uniform(state.x.shape, generator, state.x.device)[hidden]
    clean = state.x.clamp_max(process.vocab_size - 1)
    if not bool(hidden.any()):
        return clean

    def reduce(logits: Tensor, rows: slice) -> tuple[Tensor]:
        return (choice.predicted(logits, u[rows]),)

    result = network(process.shown(state, s), t, positions=hidden, valid=valid, reduce=reduce)
    clean[hidden] = result[0] if isinstance(result, tuple) else result
    return clean


def _trace_of(states: list[Tensor], grid: tuple[float, ...], process: Hybrid) -> Trace:
    """Time is 0 for sequences that are finished."""
    stacked = torch.stack(states)
    going = (stacked == process.vocab_size).any(-1)
    times = torch.tensor(grid, dtype=torch.float64, device=stacked.device)[:, None]
    return Trace(stacked, torch.where(going, times, 0.0))
