"""Uniform-state diffusion (USDM, DUO): a token is replaced by any token uniformly.

The network predicts the leave-one-out distribution p(x_0^l | x_t without position l), DUO's convention. The posterior
follows by Bayes' rule: the weight of x_t itself is multiplied by 1 + V alpha_t / (1 - alpha_t).

Shapes: x_0, x_s, x_t and `clean` are ids [*shape]; predictions and kernels [*shape, V]; a loss reads N packed rows.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor

from multimdm._checks import check_integer, require
from multimdm.process.base import Ids, NoiseKind, Process, RowReader, flat_values, with_zero_columns
from multimdm.process.checks import check_ids, check_same_shape, check_table, kind_of
from multimdm.process.draws import Generator, pick, uniform
from multimdm.process.places import beside, fused, widened
from multimdm.process.refresh import bridge_average, bridge_draw, bridge_posterior, bridge_weights
from multimdm.process.schedule import (
    BetweenValues,
    Retention,
    Schedule,
    ScheduleValues,
    Time,
    check_schedule,
    time_dtype,
)
from multimdm.process.shared_noise import (
    GaussianNoise,
    GumbelNoise,
    draw_gaussian_noise,
    draw_noise,
    first_other,
    rival_state,
    snr_of_alpha,
)
from multimdm.process.values import LossTerms


class Uniform(Process):
    """The uniform-state process on V tokens; it has no masks, and every position is always active."""

    num_masks = 0
    readout = "context"

    def __init__(self, vocab_size: int, schedule: Schedule | None = None) -> None:
        self.vocab_size = check_integer("vocab_size", vocab_size, 2)
        self.schedule = check_schedule(schedule)

    def __repr__(self) -> str:
        return f"Uniform(vocab_size={self.vocab_size}, schedule={self.schedule})"

    def prior(
        self, shape: Sequence[int], generator: Generator = None, device: torch.device | str | None = None
    ) -> Int64[Tensor, "..."]:
        """x_1: every position at a uniform token."""
        return pick(uniform(shape, generator, device), self.vocab_size)

    def active(self, x_t: Ids) -> Bool[Tensor, "*shape"]:
        """Every position: nothing tells noise from data."""
        check_ids("x_t", x_t, self.num_states)
        return torch.ones_like(x_t, dtype=torch.bool)

    # ----------------------------------------------------------------- kernels

    def marginal(self, x_0: Ids, t: Time) -> Float[Tensor, "*shape states"]:
        """p_t(. | x_0) = alpha_t 1{x_0} + (1 - alpha_t) / V. Eq. (uniform_forward_prelim)."""
        check_ids("x_0", x_0, self.vocab_size)
        dtype = time_dtype(t)
        v = self._at("t", t, x_0).to(dtype)
        return self._stay_or_spread(x_0, v.alpha, v.one_minus_alpha).to(dtype)

    def transition(self, x_s: Ids, s: Time, t: Time) -> Float[Tensor, "*shape states"]:
        """p_{t|s}(. | x_s) = alpha_{t|s} 1{x_s} + (1 - alpha_{t|s}) / V."""
        check_ids("x_s", x_s, self.num_states)
        dtype = time_dtype(s, t)
        b = self._between(s, t, x_s).to(dtype)
        return self._stay_or_spread(x_s, b.alpha, b.one_minus_alpha).to(dtype)

    def posterior(self, x_0: Ids, x_t: Ids, s: Time, t: Time) -> Float[Tensor, "*shape states"]:
        """p_{s|t}(. | x_t, x_0), by Bayes' rule."""
        self._check_pair(x_0, x_t)
        retentions = self._bridge_retentions(s, t, x_t, self._between(s, t, x_t))
        # p_s(. | x_0) p_{t|s}(x_t | .) / p_t(x_t | x_0)
        weights = bridge_weights(x_0 == x_t, *retentions, self.vocab_size)
        dtype = time_dtype(s, t)
        working = torch.promote_types(dtype, torch.float32)
        return bridge_posterior(weights.to(working), x_0.long(), x_t.long(), self.vocab_size).to(dtype)

    def reverse(
        self, clean_probs: Float[Tensor, "*shape V"], x_t: Ids, s: Time, t: Time
    ) -> Float[Tensor, "*shape states"]:
        """The posterior kernel averaged over p(x_0 | x_t) of a leave-one-out prediction: DUO's reverse kernel."""
        self._check_prediction("clean_probs", clean_probs, x_t)
        working = torch.promote_types(clean_probs.dtype, torch.float32)
        # sum over a of p(a | x_t) p_{s|t}(. | x_t, a)
        weights = self.posterior_weights(clean_probs.to(working), x_t, t)
        retentions = self._bridge_retentions(s, t, x_t, self._between(s, t, x_t))
        kernel = bridge_average(
            weights / weights.sum(-1, keepdim=True),
            x_t.long(),
            bridge_weights(True, *retentions, self.vocab_size).to(working),
            bridge_weights(False, *retentions, self.vocab_size).to(working),
            self.vocab_size,
        )
        return kernel.to(clean_probs.dtype)

    def rates(self, t: Time) -> Float[Tensor, "*times states states"]:
        """R_t[destination, source] = -(d_alpha / alpha) / V off the diagonal. Infinite at t = 1."""
        # -(alpha'_t / alpha_t) / V, the same for all pairs of tokens
        rate = self.schedule(t).hazard_alpha / self.vocab_size
        shape = (*rate.shape, self.vocab_size, self.vocab_size)
        return with_zero_columns(rate[..., None, None].expand(shape).clone())

    def model_scores(self, clean_probs: Float[Tensor, "*shape V"], x_t: Ids, t: Time) -> Float[Tensor, "*shape states"]:
        """s_theta(x_t)_j = (V alpha x_theta(j) + 1 - alpha) / (V alpha x_theta(x_t) + 1 - alpha)."""
        self._check_prediction("clean_probs", clean_probs, x_t)
        v = self._at("t", t, x_t).to(clean_probs.dtype)
        mixed = self.vocab_size * v.alpha[..., None] * clean_probs + v.one_minus_alpha[..., None]
        return (mixed / mixed.gather(-1, x_t[..., None].long())).to(clean_probs.dtype)

    # ------------------------------------------------------------------- draws

    def corrupt(self, x_0: Ids, t: Time, generator: Generator = None) -> Int64[Tensor, "*shape"]:
        """x_t ~ p_t(. | x_0), by one number per position."""
        check_ids("x_0", x_0, self.vocab_size)
        return self._spread(x_0, self._at("t", t, x_0).one_minus_alpha, generator)

    def transition_sample(self, x_s: Ids, s: Time, t: Time, generator: Generator = None) -> Int64[Tensor, "*shape"]:
        """x_t ~ p_{t|s}(. | x_s), by one number per position."""
        check_ids("x_s", x_s, self.num_states)
        return self._spread(x_s, self._between(s, t, x_s).one_minus_alpha, generator)

    def posterior_weights(self, weights: Float[Tensor, "*shape V"], x_t: Ids, t: Time) -> Float[Tensor, "*shape V"]:
        """Leave-one-out weights times p_t(x_t | .): up to a factor, 1 + V alpha / (1 - alpha) at x_t."""
        self._check_prediction("weights", weights, x_t)
        v = self._at("t", t, x_t)
        index = beside(x_t, weights)[..., None].long()
        # (1 - alpha) / (V alpha + 1 - alpha), the factor of all tokens but x_t; x_t keeps its weight
        factor = v.one_minus_alpha / (self.vocab_size * v.alpha + v.one_minus_alpha)
        working = torch.promote_types(weights.dtype, torch.float32)
        scaled = (weights.to(working) * beside(factor.to(working), weights)[..., None]).to(weights.dtype)
        return scaled.scatter(-1, index, weights.gather(-1, index))

    def posterior_logits(self, logits: Float[Tensor, "*shape V"], x_t: Ids, t: Time) -> Float[Tensor, "*shape V"]:
        """Leave-one-out logits and the evidence of x_t, log(1 + V alpha / (1 - alpha)); infinite at t = 0."""
        check_ids("x_t", x_t, self.num_states)
        check_table("logits", logits, x_t, self.vocab_size)
        v = self._at("t", t, x_t)
        # log p_t(x_t | x_0 = x_t) - log p_t(x_t | x_0 = any other)
        evidence = torch.log1p(self.vocab_size * v.alpha / v.one_minus_alpha).expand(x_t.shape)
        wide = widened(logits)
        evidence = beside(evidence.to(wide.dtype), wide)
        return wide.scatter_add(-1, beside(x_t, wide)[..., None].long(), evidence[..., None])

    def reverse_sample(
        self, clean: Ids, x_t: Ids, s: Time, t: Time, generator: Generator = None
    ) -> Int64[Tensor, "*shape"]:
        """x_s ~ p_{s|t}(. | x_t, clean), by one number per position; at s = 0 it is `clean`."""
        check_ids("clean", clean, self.vocab_size)
        check_ids("x_t", x_t, self.num_states)
        check_same_shape("clean", clean, "x_t", x_t)
        retentions = self._bridge_retentions(s, t, x_t, self._between(s, t, x_t))
        weights = bridge_weights(clean == x_t, *retentions, self.vocab_size)
        u = uniform(x_t.shape, generator, x_t.device)
        return bridge_draw(u, weights, clean.long(), x_t.long(), self.vocab_size)

    # -------------------------------------------------------------------- loss

    def _loss(self, read: RowReader, table: Tensor, x_0: Tensor, x_t: Tensor, t: Time) -> LossTerms:
        """DUO's continuous-time NELBO density for leave-one-out predictions.

        With odds = V alpha / (1 - alpha) and q the prediction, it is lambda_t / V times the bracket
        sum_{j != x_t} [s_theta(j) - s(j) - s(j) log(s_theta(j) / s(j))] of the scores
        s_theta(j) = (1 + odds q_j) / (1 + odds q_{x_t}). The bracket is of second order in the odds, so the loss
        vanishes at t = 1; there it is set to zero, its limit.
        """
        v = flat_values(self._at("t", t, x_0), x_0.shape)
        rows = table.reshape(-1, self.vocab_size)
        clean = x_0.reshape(-1).long()
        state = x_t.reshape(-1).long()
        # The floor keeps the odds finite in float32; at such times they only enter multiplied by 1 - alpha.
        odds = self.vocab_size * v.alpha / v.one_minus_alpha.clamp_min(1e-30)
        log_q = (x.double() for x in read.log1p_sum(rows, clean, state, odds))
        density = _density(*log_q, clean, state, odds, v.alpha, v.one_minus_alpha, v.hazard_alpha, self.vocab_size)
        reconstruction = density.to(torch.promote_types(rows.dtype, torch.float32)).view(x_0.shape)
        return LossTerms(reconstruction, torch.zeros_like(reconstruction))

    # ------------------------------------------------------------------- paths

    def noise(
        self,
        shape: Sequence[int],
        generator: Generator = None,
        device: torch.device | str | None = None,
        noise: NoiseKind = "gumbel",
    ) -> GumbelNoise | GaussianNoise:
        """The randomness of shared-Gumbel or of DUO's shared-Gaussian paths."""
        require(noise in ("gumbel", "gaussian"), f"noise must be 'gumbel' or 'gaussian'; got {noise!r}")
        draw = draw_noise if noise == "gumbel" else draw_gaussian_noise
        return draw(tuple(shape), self.vocab_size, generator, device)

    def noise_of(self, exponentials: Float[Tensor, "*rows V"], x_0: Int[Tensor, "*rows k"]) -> GumbelNoise:
        """What a full set of V exponentials (exp of minus the Gumbels) means for each of k clean tokens."""
        clean = exponentials.gather(-1, x_0.long())
        return GumbelNoise(clean, clean, *first_other(exponentials, x_0.long()))

    def gaussian_noise_of(self, gaussians: Float[Tensor, "*rows V"], x_0: Int[Tensor, "*rows k"]) -> GaussianNoise:
        """What a full set of V Gaussians means for each of k clean tokens."""
        others, rival = first_other(-gaussians, x_0.long())
        return GaussianNoise(gaussians.gather(-1, x_0.long()), -others, rival)

    def _check_noise(self, noise: GumbelNoise | GaussianNoise) -> None:
        require(
            isinstance(noise, (GumbelNoise, GaussianNoise)),
            f"noise must be a GumbelNoise or GaussianNoise, as `noise(shape)` gives it; got {kind_of(noise)}",
        )

    def _path(self, x_0: Tensor, noise: GumbelNoise | GaussianNoise, values: ScheduleValues) -> Int64[Tensor, "..."]:
        """The clean token until the best other overtakes it: at most one jump.

        Eq. (duo_gumbel_path) or Eq. (duo_gaussian_path); by Thm. (duo_gumbel_path) they agree in law.
        """
        if isinstance(noise, GaussianNoise):  # the clean token wins while snr > the best rival's Gaussian - its own
            keeps = snr_of_alpha(values.alpha, values.one_minus_alpha, self.vocab_size) > noise.others - noise.clean
        else:  # it arrives first while e_{x_0} / p_t(x_0) <= e_rival / p_t(rival)
            each_other = values.one_minus_alpha / self.vocab_size
            keeps = noise.clean / (values.alpha + each_other) <= noise.others / each_other
        rival = rival_state(x_0.long(), noise.rival, self.vocab_size)
        return torch.where(keeps, x_0.long(), rival)

    # ----------------------------------------------------------------- helpers

    @staticmethod
    def _retention(values: ScheduleValues | BetweenValues) -> Retention:
        return values.tokens

    def _spread(self, x: Tensor, lost: Tensor, generator: Generator) -> Int64[Tensor, "*shape"]:
        """Any token with probability `lost`, else x."""
        # u < lost loses the token; u / lost is then uniform again, and picks any
        u = uniform(x.shape, generator, x.device)
        return torch.where(u < lost, pick((u / lost).clamp_max(1.0), self.vocab_size), x.long())

    def _stay_or_spread(self, x: Tensor, stay: Tensor, spread: Tensor) -> Tensor:
        """stay 1{x} + spread / V."""
        result = (spread / self.vocab_size).expand(x.shape)[..., None].repeat(*[1] * x.ndim, self.vocab_size)
        return result.scatter_add_(-1, x[..., None].long(), stay.expand(x.shape)[..., None])


@fused
def _density(
    log_q_clean: Tensor,
    log_q_state: Tensor,
    log_sum: Tensor,
    clean: Tensor,
    state: Tensor,
    odds: Tensor,
    alpha: Tensor,
    one_minus_alpha: Tensor,
    hazard_alpha: Tensor,
    V: int,
) -> Tensor:
    """lambda_t / V times the bracket, lambda_t = -alpha'_t / alpha_t."""
    # 0 at t = 1, where lambda_t is infinite and the bracket vanishes faster
    weight = torch.where(alpha > 0, hazard_alpha / V, 0.0)
    bracket = torch.where(
        clean == state,
        _bracket_at_clean(log_q_state, log_sum, alpha, one_minus_alpha, V),
        _bracket_elsewhere(log_q_clean, log_q_state, log_sum, odds, V),
    )
    return weight * bracket


def _bracket_at_clean(log_q: Tensor, log_sum: Tensor, alpha: Tensor, one_minus_alpha: Tensor, V: int) -> Tensor:
    """The bracket where x_t = x_0 = i: A [(V-1)(z - log(1+z)) - log_sum] + z.

    A = 1 / (1 + odds) and 1 + z = (1 + odds) / (1 + odds q_i); `log_sum` runs over log(1 + odds q_j), j != i.
    """
    signal = V * alpha
    A = one_minus_alpha / (signal + one_minus_alpha)
    z = signal * -torch.expm1(log_q) / (signal * torch.exp(log_q) + one_minus_alpha)
    return A * ((V - 1) * (z - torch.log1p(z)) - log_sum) + z


def _bracket_elsewhere(log_q_clean: Tensor, log_q_state: Tensor, log_sum: Tensor, odds: Tensor, V: int) -> Tensor:
    """The bracket where x_t = i differs from x_0: s(x_0) = 1 + odds, and s(j) = 1 for all other j."""
    q_i = torch.exp(log_q_state)
    rest = -torch.expm1(log_q_state)
    y = odds * q_i
    log_i = torch.log1p(y)
    # sum_{j != i} [s_theta(j) - 1 - log s_theta(j)]: all j != i as if s(j) = 1
    spread = (V - 1) * (log_i - y / (1 + y)) + odds * rest / (1 + y) - log_sum
    # what s(x_0) = 1 + odds changes in the term of j = x_0
    true_ratio = (1 + odds) * torch.log1p(odds) - odds
    return spread + true_ratio - odds * (torch.log1p(odds * torch.exp(log_q_clean)) - log_i)
