"""What masks tell a network: its NELBO with the true masks, and with random ones shown in their place.

In the same states x_t, at the same times, the network predicts once from x_t and once from x_t with every mask
replaced by one that is drawn uniformly. Both predictions are held against the true state, so that the difference is
exactly zero for a network to which all masks are alike, and what it gains by reading them for any other. Many masks
work through being read: where the difference is next to nothing, they were not tested.

Where own masks are read by Bayes' rule (readout: context), the rule reads the true ones in both cases: the difference
is what the network gets out of the masks of other positions, which is where few steps gain.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from multimdm.evaluation.held_out import Part, over_parts
from multimdm.evaluation.hidden_counts import noised
from multimdm.evaluation.nelbo import NelboSums
from multimdm.evaluation.progress import Progress, ignore
from multimdm.evaluation.real_text import RealText
from multimdm.objectives.base import Network, rows_on
from multimdm.pipeline import Model
from multimdm.process import Process, Streams

_LITTLE = 0.05
"""Nats per token. Who reads the masks of Tales perfectly gains 0.27 with two masks, 0.66 with twenty (rho = 1)."""
_LITTLE_OF_OTHERS = 0.01
"""The same where own masks are read by Bayes' rule: 0.023 with two masks, 0.12 with twenty."""
_ERRORS = 2.0
"""Standard errors below which a difference may be none."""
_OTHER_STREAM = 1
"""Added to the seed: the masks that are shown must not be those of the noise."""


@dataclass(frozen=True)
class MaskReading:
    """Estimates in nats per token."""

    true: float
    """The NELBO with the true masks shown."""
    random: float
    """The same with random masks shown."""
    standard_error: float
    """The error of the difference, over sequences. It is small, since both have the same times and positions."""
    sequences: int
    own_by_rule: bool = False
    """Whether own masks are read by Bayes' rule, so that only those of other positions are left to the network."""

    @property
    def difference(self) -> float:
        """What the masks tell, in nats per token."""
        return self.random - self.true

    @property
    def tested(self) -> bool:
        """Whether the masks tell enough for the method to have been tested."""
        little = _LITTLE_OF_OTHERS if self.own_by_rule else _LITTLE
        return self.difference > max(little, _ERRORS * self.standard_error)


def reads_masks(model: Model) -> bool:
    """Whether there is something to read: several masks, and noise that is not kept beside them."""
    process = model.process
    return process is not None and process.num_masks > 1 and not process.tied_noise


def evaluate_mask_reading(
    model: Model,
    text: RealText,
    sequences: int = 512,
    draws: int = 1,
    seed: int = 0,
    batch_size: int = 64,
    progress: Progress = ignore,
) -> MaskReading:
    """What masks tell on held-out text, with the hidden positions and the noise of `evaluate_nelbo`."""
    process = model.process
    if not (isinstance(process, Process) and reads_masks(model)):
        raise ValueError(f"what masks tell is for several masks whose noise is not kept; got {process!r}")

    def of(part: Part) -> tuple[NelboSums, NelboSums]:
        with_true, with_random = masked_losses(
            model.network, process, part, part.streams(seed), part.streams(seed + _OTHER_STREAM)
        )
        tokens, none = part.tokens.double(), torch.zeros_like(with_true)
        progress(len(part.ids) * draws)
        return NelboSums.of(with_true, none, tokens), NelboSums.of(with_random - with_true, none, tokens)

    found = over_parts(model, text, sequences, draws, seed, batch_size, of)
    nelbo, difference = (NelboSums.of_parts(sums).estimate() for sums in zip(*found, strict=True))
    random, by_rule = nelbo.total + difference.total, process.readout == "context"
    return MaskReading(nelbo.total, random, difference.standard_error, nelbo.sequences, by_rule)


@torch.no_grad()
def masked_losses(
    network: Network, process: Process, part: Part, noise: Streams, masks: Streams
) -> Float64[Tensor, "2 B"]:
    """The loss per sequence with true and with random masks, averaged over the draws."""
    path = process.path_to()
    found = []
    for spread in part.times.to(part.ids.device):
        state = noised(path, part.ids, part.counted, spread, noise)
        random = torch.where(state.positions, process.prior(state.x_t.shape, masks, state.x_t.device), state.x_t)
        losses = []
        for shown in (state.x_t, random):
            rows = rows_on(path, part.ids, state.x_t, state.t, state.positions, part.valid, shown)
            losses.append(rows.by_sequence(network).sum(0))
        found.append(state.weight * torch.stack(losses))
    return torch.stack(found).mean(0)
