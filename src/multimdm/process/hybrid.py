"""CANDI's hybrid process: a token is visible or hidden, as with one mask; a hidden one leaves a noisy one-hot behind.

At time t a position shows its token with probability alpha_t. If it does not, what is left of the token is the vector
w = onehot(x_0) + sigma_t eps of R^V, eps standard Gaussian, in which x_0 has an expected rank that grows with t
(`sigma_of_rank`). The network is shown the sum of w_v e(v) over all embeddings, beside that of the mask.

w is never made. It is kept as a few weighted one-hots and the scale of its noise, a form that the sampler's steps keep;
and since the embeddings have d dimensions, the noise in their sum takes d numbers per position, not V (`NoisyMixture`).
For V = 50,257 and d = 768 that is a 65th, and the sum costs d^2 multiplications instead of d V.

Two things to know. At t = 1 the noise is finite: w still tells of x_0, while sampling starts from noise without it. And
the loss leaves the Gaussian part of the likelihood out, so it is no bound of it and can fall below the entropy.

Shapes: B sequences of L positions; noise [B, L, n] with n = V or d numbers per position.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from multimdm._checks import check_integer, require
from multimdm.process import fused_readout
from multimdm.process.base import Ids, Process
from multimdm.process.checks import check_ids, check_same_shape, check_table
from multimdm.process.draws import Generator, uniform
from multimdm.process.places import at_home, beside, fuses, widened
from multimdm.process.schedule import Schedule, Time, check_order, check_schedule, check_time, exact_time, per_position
from multimdm.process.settings import USUAL_RANKS
from multimdm.process.values import NoisyMixture

MASK_SHARE = 0.5
"""The weight of the mask's embedding in what a hidden position shows; the rest is that of the noisy one-hot."""


def sigma_of_rank(rank: Float64[Tensor, "*s"], vocab_size: int) -> Float64[Tensor, "*s"]:
    """sigma = -1 / (sqrt 2 Phi^-1(rank V / (V - 1))) at which x_0 has this expected rank; finite below (V - 1) / 2V.

    Of w = onehot(x_0) + sigma eps in R^V, the rank is the share of coordinates that exceed the one of x_0. Each of the
    V - 1 others does so with probability Phi(-1 / (sigma sqrt 2)), since its difference to the clean one is
    N(-1, 2 sigma^2): the expected rank is (V - 1) / V of that, from 0 without noise to (V - 1) / 2V, where nothing is
    left of x_0.
    """
    return -1 / (math.sqrt(2) * torch.special.ndtri(rank * vocab_size / (vocab_size - 1)))


@dataclass(frozen=True)
class Latent:
    """w = sum_k weights_k onehot(tokens_k) + scale eps, a vector of R^V per position."""

    tokens: Int64[Tensor, "B L k"]
    weights: Float64[Tensor, " k"]
    noise: Float[Tensor, "B L n"]
    """eps, or fewer numbers that stand for it (`NoisyMixture`)."""
    scale: Float64[Tensor, "b l"]

    def towards(self, tokens: Int64[Tensor, "B L"], share: Float64[Tensor, ""]) -> "Latent":
        """w - share (w - onehot(tokens))."""
        return Latent(
            torch.cat([self.tokens, tokens[..., None]], dim=-1),
            torch.cat([(1 - share) * self.weights, share[None]]),
            self.noise,
            (1 - share) * self.scale,
        )


@dataclass(frozen=True)
class HybridState:
    """x_t: tokens where they are visible, vectors where they are not."""

    x: Int64[Tensor, "B L"]
    """The token, or the id V where it is hidden."""
    latent: Latent
    """What is left of hidden tokens; elsewhere it means nothing."""


class Hybrid:
    """The process of CANDI on V tokens. Its states are no finite set, so it is no `Process`."""

    num_masks = 1
    """The network has an embedding for "hidden", the id V."""
    tied_noise = False

    def __init__(
        self,
        vocab_size: int,
        schedule: Schedule | None = None,
        ranks: tuple[float, float] = USUAL_RANKS,
        noise_dim: int | None = None,
    ) -> None:
        """`ranks` are the expected ranks at t = 0 and t = 1. `noise_dim` is V or the width d of the embeddings."""
        self.vocab_size = check_integer("vocab_size", vocab_size, 3)
        self.schedule = check_schedule(schedule)
        low, high = ranks
        most = (vocab_size - 1) / (2 * vocab_size)
        require(
            0 < low < high < most,
            f"ranks must rise within (0, {most:.4g}), what noise can do to one of {vocab_size} tokens; got {ranks}",
        )
        self.ranks = (float(low), float(high))
        self.noise_dim = check_integer("noise_dim", vocab_size if noise_dim is None else noise_dim, 1)

    def __repr__(self) -> str:
        return f"Hybrid(vocab_size={self.vocab_size}, schedule={self.schedule}, ranks={self.ranks})"

    @property
    def num_states(self) -> int:
        """Ids that a network is shown: the tokens, and "hidden"."""
        return self.vocab_size + self.num_masks

    def hidden(self, state: HybridState) -> Bool[Tensor, "B L"]:
        """The positions that the network must predict."""
        return state.x == self.vocab_size

    def sigma(self, t: Float64[Tensor, "*s"]) -> Float64[Tensor, "*s"]:
        """The noise whose expected rank is low + (high - low) (1 - alpha_t)."""
        low, high = self.ranks
        return sigma_of_rank(low + (high - low) * self.schedule(t).one_minus_alpha, self.vocab_size)

    # ------------------------------------------------------------------- draws

    def corrupt(self, x_0: Ids, t: Time, generator: Generator = None) -> HybridState:
        """A draw of x_t given x_0."""
        check_ids("x_0", x_0, self.vocab_size)
        check_time("t", t)
        time = per_position("t", t, x_0)
        lost = self.schedule(time).one_minus_alpha
        u = uniform(x_0.shape, generator, x_0.device)
        one = torch.ones(1, dtype=torch.float64, device=x_0.device)
        # w = onehot(x_0) + sigma_t eps; the token itself shows with probability alpha_t
        latent = Latent(x_0.long()[..., None], one, self._noise(x_0.shape, generator, x_0.device), self.sigma(time))
        return HybridState(torch.where(u < lost, self.vocab_size, x_0.long()), latent)

    def prior(
        self, shape: Sequence[int], generator: Generator = None, device: torch.device | str | None = None
    ) -> HybridState:
        """Where sampling starts: everything hidden, and nothing but noise left, w = sigma_1 eps."""
        x = torch.full(tuple(shape), self.vocab_size, device=device)
        none = torch.zeros(0, dtype=torch.float64, device=x.device)
        one = torch.ones((1, 1), dtype=torch.float64, device=x.device)
        noise = self._noise(x.shape, generator, x.device)
        return HybridState(x, Latent(x.new_zeros((*x.shape, 0)), none, noise, self.sigma(one)))

    def reverse_sample(
        self, clean: Ids, state: HybridState, s: float, t: float, generator: Generator = None
    ) -> HybridState:
        """CANDI's step from t to s, given hypotheses of the clean tokens that were drawn from the prediction.

        w -= (sigma_t - sigma_s) (w - onehot(clean)) / sigma_s^2. A hidden token becomes visible with probability
        (alpha_s - alpha_t) / (1 - alpha_t), as its last hypothesis; at s = 0 all do. The published sampler divides by
        the square of the noise; an Euler step of the Gaussian's own flow would divide by sigma_t.
        """
        check_ids("clean", clean, self.vocab_size)
        check_same_shape("clean", clean, "x_t", state.x)
        check_order(s, t)
        at_s = exact_time(s, state.x.device)
        at_t = exact_time(t, state.x.device)
        sigma_s = self.sigma(at_s)
        sigma_t = self.sigma(at_t)
        # w - (sigma_t - sigma_s) / sigma_s^2 (w - onehot(clean))
        latent = state.latent.towards(clean.long(), (sigma_t - sigma_s) / sigma_s**2)
        stays = uniform(state.x.shape, generator, state.x.device) < self.schedule.between(at_s, at_t).still_hidden
        return HybridState(torch.where(self.hidden(state) & ~stays, clean.long(), state.x), latent)

    # ------------------------------------------------- what networks are shown

    def shown(self, state: HybridState, t: Time) -> NoisyMixture:
        """1/2 e(mask) + 1/2 sum_v w_v e(v) / sqrt(1 + sigma_t^2) where a token is hidden, else e of the token."""
        hidden = self.hidden(state)
        # (1/2) / sqrt(1 + sigma_t^2), by which w is scaled where a token is hidden
        gain = (1 - MASK_SHARE) * torch.rsqrt(1 + self.sigma(per_position("t", t, state.x)) ** 2)
        of_latent = torch.where(hidden[..., None], gain[..., None] * state.latent.weights, 0.0)
        of_x = torch.where(hidden, MASK_SHARE, 1.0).to(of_latent.dtype)
        return NoisyMixture(
            weights=torch.cat([of_x[..., None], of_latent], dim=-1),
            ids=torch.cat([state.x[..., None], state.latent.tokens], dim=-1),
            noise=state.latent.noise,
            scale=torch.where(hidden, gain * state.latent.scale, 0.0),
        )

    # -------------------------------------------------------------------- loss

    def loss(self, log_probs: Float[Tensor, "*shape V"], x_0: Ids, t: Time) -> Float[Tensor, "*shape"]:
        """log p(x_0) alpha'_t / (1 - alpha_t), the loss density of a hidden position."""
        check_ids("x_0", x_0, self.vocab_size)
        check_table("log_probs", log_probs, x_0, self.vocab_size)
        check_time("t", t)
        picked = at_home(log_probs.gather(-1, beside(x_0, log_probs)[..., None].long())[..., 0])
        return self._weighed(picked, x_0, t)

    def logit_loss(self, logits: Float[Tensor, "N V"], x_0: Int64[Tensor, " N"], t: Time) -> Float[Tensor, " N"]:
        """The loss density of a hidden position for softmax(logits), in float32 or better; on a GPU without log p."""
        if not fuses(logits):
            return self.loss(widened(logits).log_softmax(-1), x_0, t)
        return self._weighed(fused_readout.picked(logits, x_0), x_0, t)

    def _weighed(self, log_prob: Tensor, x_0: Tensor, t: Time) -> Tensor:
        v = self.schedule(per_position("t", t, x_0))
        return log_prob * (v.d_alpha / v.one_minus_alpha).to(log_prob.dtype)

    def _noise(self, shape: Sequence[int], generator: Generator, device: torch.device) -> Float[Tensor, "B L n"]:
        """Standard Gaussians; drawn in float64 for their tails, kept in float32."""
        return torch.special.ndtri(uniform((*shape, self.noise_dim), generator, device)).float()


AnyProcess = Process | Hybrid
"""What a model can have been trained with."""
