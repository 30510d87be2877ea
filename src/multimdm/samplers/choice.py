"""How a clean token is chosen from the network's logits.

Temperature, top-k and top-p act on the network's prediction of the clean token, as in App. (tau); what the process
makes of the prediction comes after. Where the prediction is the posterior, as the paper's is for masks, nothing more
happens. For uniform states, and for masks that are read by Bayes' rule, it is what the context says, and the evidence
of the current state joins afterwards: a temperature on the posterior would also bend the noise process, whose law is
known. Who wants that can have it (`Choice.on`).

Shapes: n rows of logits, one per position that is asked for; V clean tokens.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from multimdm.process import Process, Time
from multimdm.process.draws import draw_token, invert_cdf
from multimdm.process.places import fuses, has_float64, widened
from multimdm.samplers.settings import TemperatureOn


@dataclass(frozen=True)
class Choice:
    """How a clean token is chosen from logits g: softmax(g / temperature), cut to top-k, then to top-p."""

    temperature: float | int = 1.0
    """tau of App. (tau); 0 takes the most probable token."""
    top_p: float | int = 1.0
    """Keep the fewest most probable tokens that hold this share of the probability."""
    top_k: int | None = None
    """Keep this many most probable tokens."""
    greedy: bool = False
    """Take the most probable token of the posterior instead of drawing from it."""
    never: tuple[int, ...] = ()
    """Tokens that are not chosen, whatever their probability."""
    on: TemperatureOn = "prediction"
    """What temperature, top-k and top-p act on: what the network predicts, before the evidence of the state joins, or
    the posterior. Where the prediction is the posterior, it is the same."""

    @property
    def certain(self) -> bool:
        """Whether nothing is drawn."""
        return self.greedy or self.temperature == 0

    @property
    def whole(self) -> bool:
        """Whether no token is cut off."""
        return self.top_p >= 1 and self.top_k is None

    def allowed(self, logits: Float[Tensor, "n V"]) -> Float[Tensor, "n V"]:
        """The logits without the tokens that are never chosen."""
        return without(logits, self.never)

    def weights(self, logits: Float[Tensor, "n V"]) -> Float[Tensor, "n V"]:
        """The prediction up to a factor per row, in float32 or better; bfloat16 logits are widened first."""
        logits = self.allowed(widened(logits))
        if self.temperature == 0:
            best = logits.argmax(-1, keepdim=True)
            return torch.zeros_like(logits).scatter_(-1, best, 1.0)
        scaled = logits if self.temperature == 1 else logits / self.temperature
        return keep_top_p(keep_top_k(torch.softmax(scaled, -1), self.top_k), self.top_p)

    def predicted(self, logits: Float[Tensor, "n V"], u: Float64[Tensor, " n"]) -> Int64[Tensor, " n"]:
        """One clean token per row of logits that are all there is to know, drawn by the number u of its row."""
        if self.certain:
            return self.allowed(logits).argmax(-1)
        return invert_cdf(self.weights(logits), u)

    def law(
        self, process: Process, logits: Float[Tensor, "n V"], x_t: Int64[Tensor, " n"], t: Time
    ) -> Float[Tensor, "n V"]:
        """The law that a clean token is drawn from, up to a factor per row, at a temperature above 0."""
        if self.on == "posterior":
            return self.weights(process.posterior_logits(logits, x_t, t))
        return process.posterior_weights(self.weights(logits), x_t, t)

    def token(
        self,
        process: Process,
        logits: Float[Tensor, "n V"],
        x_t: Int64[Tensor, " n"],
        t: Time,
        u: Float64[Tensor, " n"] | None,
    ) -> Int64[Tensor, " n"]:
        """One clean token per row of logits, drawn by the number u of its row; without numbers the most probable."""
        if self.temperature == 0:  # a point mass is its own posterior
            return (process.posterior_logits(logits, x_t, t) if self.on == "posterior" else logits).argmax(-1)
        if u is not None and self.whole and fuses(logits):
            return draw_token(self._scaled_posterior(process, logits, x_t, t), u)
        weights = self.law(process, logits, x_t, t)
        return weights.argmax(-1) if u is None else invert_cdf(weights, u)

    def _scaled_posterior(self, process: Process, logits: Tensor, x_t: Tensor, t: Time) -> Tensor:
        """Logits of the posterior, with the temperature on what `on` says."""
        if self.on == "posterior":
            return process.posterior_logits(logits, x_t, t) / self.temperature
        return process.posterior_logits(logits if self.temperature == 1 else logits / self.temperature, x_t, t)


USUAL = Choice()
"""Draw from the prediction as it is."""


def without(logits: Float[Tensor, "n V"], tokens: tuple[int, ...]) -> Float[Tensor, "n V"]:
    """Logits that give these tokens no probability."""
    if not tokens:
        return logits
    return logits.index_fill(-1, torch.tensor(tokens, device=logits.device), -torch.inf)


def keep_top_k(weights: Float[Tensor, "n V"], k: int | None) -> Float[Tensor, "n V"]:
    """The k largest weights of each row; the rest are zero."""
    if k is None or k >= weights.shape[-1]:
        return weights
    largest = weights.topk(k, dim=-1)
    return torch.zeros_like(weights).scatter_(-1, largest.indices, largest.values)


def keep_top_p(weights: Float[Tensor, "n V"], p: float | int) -> Float[Tensor, "n V"]:
    """The fewest largest weights of each row that together reach the share p of its sum; the rest are zero."""
    if p >= 1:
        return weights
    ordered = torch.sort(weights, dim=-1, descending=True, stable=True)
    # A table, so it stays where it is: without float64 the cut may be a token off where the share is met within 1e-6.
    widest = torch.float64 if has_float64(weights.device) else torch.float32
    running = ordered.values.to(widest).cumsum(-1)
    before = running - ordered.values
    outside = before >= p * running[..., -1:]
    outside[..., 0] = False  # rounding may not empty a row
    return torch.zeros_like(weights).scatter_(-1, ordered.indices, ordered.values.masked_fill(outside, 0.0))
