"""Contexts with mistakes: some of the tokens that a network is shown are not the text's, as a sampler's are not.

In training every visible token is right. A sampler draws several tokens at a time, none knowing of the others, so its
contexts contradict themselves, and a network that never met a contradiction believes in all of it. Here some visible
tokens are replaced. What is asked stays the same: the text's own tokens at the hidden positions, whose masks stay the
text's too. The loss of such sequences is no bound of the likelihood, of theirs or of any text's; validation, which
shows texts as they are, stays exact.

Shapes: B sequences of L positions, x_t and the later state [B, L], times [B]; V tokens.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from multimdm._checks import require
from multimdm.objectives.base import Batch, Network, asked_sequences
from multimdm.objectives.settings import ContextSettings
from multimdm.process import Process
from multimdm.process.draws import invert_cdf
from multimdm.process.places import widened

_LATEST = 1 - 2.0**-30
"""Own draws are made as if t were at most this: no time is later than 1, where nothing is visible to be replaced."""


class Mistakes(NamedTuple):
    """Where a context is not the text's, and what stands there."""

    where: Bool[Tensor, "B L"]
    tokens: Int64[Tensor, "B L"]

    def in_place(self, x: Int64[Tensor, "B L"]) -> Int64[Tensor, "B L"]:
        """The state x with these tokens in their places."""
        return torch.where(self.where, self.tokens, x)


@dataclass(frozen=True)
class Context:
    """What becomes of contexts; `law` has the weights of the tokens that are put in, None for the network's own."""

    settings: ContextSettings
    law: Float64[Tensor, " V"] | None = None

    def __post_init__(self) -> None:
        require(self.settings.by != "none", "context.by is none: an objective without mistakes has no context")
        require(
            (self.law is None) == (self.settings.by == "own"),
            f"law must be given unless context.by is own; by is {self.settings.by}, and the law "
            f"{'is missing' if self.law is None else 'was given'}",
        )
        require(
            self.law is None or (bool((self.law >= 0).all()) and float(self.law.sum()) > 0),
            "law must have a weight for every token, none below 0 and not all 0",
        )

    def check(self, process: Process) -> None:
        """Refuse processes whose contexts are no tokens of the text, or have more to them."""
        require(
            process.num_masks > 0,
            f"context is for masked processes: uniform states have wrong tokens of their own; got {process!r}",
        )
        require(not process.tied_noise, "context is not for noise that is tied to the text, which would contradict it")
        V = None if self.law is None else len(self.law)
        require(V in (None, process.vocab_size), f"law must have {process.vocab_size} weights, one per token; got {V}")

    def shown(
        self, network: Network, process: Process, batch: Batch, x_t: Int64[Tensor, "B L"], t: Float[Tensor, " B"]
    ) -> Int64[Tensor, "B L"]:
        """The state x_t with mistakes."""
        mistakes = self.mistakes(network, process, batch, x_t, t)
        return x_t if mistakes is None else mistakes.in_place(x_t)

    def mistakes(
        self, network: Network, process: Process, batch: Batch, x_t: Int64[Tensor, "B L"], t: Float[Tensor, " B"]
    ) -> Mistakes | None:
        """The mistakes in x_t, drawn from the stream of each sequence; None, with nothing drawn, if there are none."""
        share = self.settings.share
        sequences = self.settings.sequences
        if share == 0 or sequences == 0:
            return None
        B, L = x_t.shape
        # which sequences have mistakes, and where a token shows that may be replaced
        chosen = batch.generator.uniform((B, 1), x_t.device) < sequences
        visible = batch.asked(~process.active(x_t) & chosen)
        if self.law is None:
            return self._own(network, process, batch, x_t, t, visible, chosen[:, 0])
        u = batch.generator.uniform((B, L, 2), x_t.device)
        return Mistakes(visible & (u[..., 0] < share), _draw(self.law, u[..., 1]))

    @torch.no_grad()
    def _own(
        self,
        network: Network,
        process: Process,
        batch: Batch,
        x_t: Int64[Tensor, "B L"],
        t: Float[Tensor, " B"],
        visible: Bool[Tensor, "B L"],
        chosen: Bool[Tensor, " B"],
    ) -> Mistakes:
        """What one step of the sampler reveals on its way to t, with the text's tokens where it reveals nothing.

        Noise goes on from x_t to a later time, at which every visible token is hidden with probability `share`. A
        reverse step back to t would reveal just as many, so those that were hidden meanwhile are the ones that it
        reveals, each drawn from the network's posterior at the later time.

        Where no sequence has mistakes the network is still run, on one, since other ranks may be waiting.
        """
        # x_later ~ p_{later|t}(. | x_t), where 1 - alpha_{later|t} = share
        t = t.clamp_max(_LATEST)
        later = process.schedule.later(t, self.settings.share)
        x_later = batch.keep(process.transition_sample(x_t, t, later, batch.generator))
        u = batch.generator.uniform(x_t.shape, x_t.device)
        where = visible & process.active(x_later)
        # x_0 ~ p^theta(. | x_later) where a visible token was hidden meanwhile
        rows = asked_sequences(chosen)
        asked = where[rows]
        valid = None if batch.valid is None else batch.valid[rows]
        sequence, place = asked.nonzero(as_tuple=True)  # once: on a GPU it waits for the positions
        state = x_later[rows[sequence], place]
        number = u[rows[sequence], place]
        time = later[rows[sequence]]

        def reduce(logits: Tensor, part: slice) -> Tensor:
            weights = process.posterior_weights(widened(logits).softmax(-1), state[part], time[part])
            return invert_cdf(weights, number[part])

        drawn = network(x_later[rows], later[rows], asked, valid, reduce)
        return Mistakes(where, x_t.index_copy(0, rows, x_t[rows].masked_scatter(asked, drawn)))


def _draw(law: Float64[Tensor, " V"], u: Float64[Tensor, "B L"]) -> Int64[Tensor, "B L"]:
    """The token at which the running sum of the law passes u times its total: one table serves all positions."""
    # Rounding may push the number onto the total. The law is asked where it lies, so that no GPU is waited for.
    last = int(law.nonzero()[-1])
    running = law.cumsum(0).to(u.device)
    return torch.searchsorted(running, u * running[-1], right=True).clamp_max_(last)
