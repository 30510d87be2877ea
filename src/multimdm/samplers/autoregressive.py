"""Autoregressive sampling, for the causal networks that serve as baselines and judges.

Shapes: B sequences of L positions.
"""

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from multimdm.process import Generator
from multimdm.process.checks import check_ids, check_same_shape
from multimdm.process.draws import uniform
from multimdm.samplers.batch import Network
from multimdm.samplers.choice import USUAL, Choice
from multimdm.samplers.loop import Generated, Watch
from multimdm.samplers.trace import Trace


@torch.no_grad()
def generate_autoregressive(
    network: Network,
    vocab_size: int,
    given: Int64[Tensor, "B L"],
    fixed: Bool[Tensor, "B L"] | None = None,
    choice: Choice = USUAL,
    generator: Generator = None,
    trace: bool = False,
    watch: Watch | None = None,
) -> Generated:
    """x^l ~ p^theta(. | x^{<l}) for l = 1 .. L.

    The network's input is the start symbol, id V, followed by the tokens so far; its logits at input index l are for
    token l. One call per position that some sequence has to make; in the trace, V stands for what is not made yet.
    """
    check_ids("given", given, vocab_size + 1)
    fixed = torch.zeros_like(given, dtype=torch.bool) if fixed is None else fixed
    check_same_shape("fixed", fixed, "given", given)
    start = given.new_full((len(given), 1), vocab_size)
    x = torch.where(fixed, given, start)
    u = uniform(x.shape, generator, x.device)
    calls = 0
    states = [x.clone()]
    for place in range(x.shape[1]):
        # x^l ~ p(. | x^{<l}), in the sequences in which it is not given
        makes = ~fixed[:, place]
        if bool(makes.any()):
            tokens = _next_token(network, torch.cat([start, x[:, :place]], dim=1), choice, u[:, place])
            x[:, place] = torch.where(makes, tokens, x[:, place])
            calls += 1
        if trace:
            states.append(x.clone())
        if watch is not None:
            watch(place + 1, x.shape[1], x)
    each = torch.full((len(x),), calls, dtype=torch.long, device=x.device)
    return Generated(x, each, _trace_of(states, vocab_size) if trace else None)


def _next_token(network: Network, inputs: Tensor, choice: Choice, u: Tensor) -> Int64[Tensor, " B"]:
    """A token after the last input of every sequence."""

    def reduce(logits: Tensor, rows: slice) -> Tensor:
        return choice.predicted(logits, u[rows])

    last = torch.zeros_like(inputs, dtype=torch.bool)
    last[:, -1] = True
    result = network(inputs, None, positions=last, valid=None, reduce=reduce)
    return result[0] if isinstance(result, tuple) else result


def _trace_of(states: list[Tensor], vocab_size: int) -> Trace:
    """Time is the share of a sequence that is not made yet."""
    stacked = torch.stack(states)
    return Trace(stacked, (stacked == vocab_size).double().mean(-1))
