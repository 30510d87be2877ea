"""Paths from x_0 to a given noise string x_1, so that noise can be tied to data, and kept.

x_t is x_0 with probability alpha_t; else m(x_0) with probability beta_t; else x_1. With x_1 uniform and independent of
x_0 every marginal is that of `MultiMask`. With another joint law of (x_0, x_1), each of them still distributed as
before, the marginals of x_0 and x_1 are untouched while x_1 tells of x_0.

Shapes: x_0, x_t, x_1 and `clean` are ids [*shape]; logits [*shape, V]; masses of masks [*shape, M].
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from multimdm.process.base import Ids, Path
from multimdm.process.checks import check_ids, check_same_shape
from multimdm.process.draws import Generator, uniform
from multimdm.process.multimask import MultiMask
from multimdm.process.places import at_home, beside, widened
from multimdm.process.schedule import ScheduleValues, Time, check_order, check_time, per_position
from multimdm.process.values import LossTerms, Mixture


@dataclass(frozen=True)
class TiedPath(Path):
    """The paths of masks to an x_1 that is kept; given x_1 each is a Markov chain of at most two jumps."""

    process: MultiMask
    x_1: Int64[Tensor, "*shape"]

    def at(self, where: Any) -> "TiedPath":
        """The paths of some sequences, or of packed positions."""
        return replace(self, x_1=self.x_1[where])

    # ------------------------------------------------------------------- draws

    def corrupt(self, x_0: Ids, t: Time, generator: Generator = None) -> Int64[Tensor, "*shape"]:
        """x_t on the path from x_0 to x_1."""
        check_time("t", t)
        return self._states(x_0, self.process.schedule(per_position("t", t, x_0)), generator)

    def masks_of(self, x_0: Ids, t: Time, generator: Generator = None) -> Int64[Tensor, "*shape"]:
        """x_t given that every position is hidden: m(x_0) with probability beta_t, else x_1."""
        leave_mask = uniform(x_0.shape, generator, x_0.device)
        beta_t = self.process.schedule(per_position("t", t, x_0)).beta
        return torch.where(leave_mask < beta_t, self.process.designated_mask(x_0), self.x_1)

    def reverse_sample(
        self, clean: Ids, x_t: Ids, s: Time, t: Time, generator: Generator = None
    ) -> Int64[Tensor, "*shape"]:
        """x_s given x_t, x_1 and a hypothesis of the clean token, by one number per position.

        Revealed with probability (alpha_s - alpha_t) / (1 - alpha_t). A position that stays hidden and is at its own
        x_1 goes to the designated mask with probability (beta_s - beta_t) / (1 - beta_t), else it stays; one that is
        elsewhere is at a designated mask, and stays there until it is revealed. A visible token stays; s = 0 leaves no
        mask.
        """
        check_ids("clean", clean, self.process.vocab_size)
        check_ids("x_t", x_t, self.process.num_states)
        check_same_shape("clean", clean, "x_t", x_t)
        check_same_shape("x_t", x_t, "x_1", self.x_1)
        check_order(s, t)
        between = self.process.schedule.between(per_position("s", s, x_t), per_position("t", t, x_t))
        return self.process.reveal(clean, x_t, between, generator, lambda u: self.remain(clean, x_t, s, t, u))

    def remain(self, clean: Ids, x_t: Ids, s: Time, t: Time, u: Float[Tensor, "*shape"]) -> Int64[Tensor, "*shape"]:
        """x_s of a position that stays hidden, by one number each; at visible positions the result means nothing."""
        at_s = self.process.schedule(per_position("s", s, x_t))
        at_t = self.process.schedule(per_position("t", t, x_t))
        # (beta_s - beta_t) / (1 - beta_t), from the complements, which are exact near t = 0
        enter = 1 - at_s.one_minus_beta / at_t.one_minus_beta
        return torch.where((x_t == self.x_1) & (u < enter), self.process.designated_mask(clean), x_t.long())

    # ---------------------------------------------------------------- networks

    def shown(self, x_t: Ids, given: Bool[Tensor, "*shape"] | None = None) -> Tensor | Mixture:
        """x_t, and beside it x_1 at every position if the process says so.

        Mask j as noise is the id V + M + j, that of a row of its own: the network can tell it from j as a state. Where
        a token is `given`, the noise behind it is not known, and the weight of its row is 0.
        """
        if not self.process.noise_shown:
            return x_t
        ids = torch.stack([x_t.long(), self.x_1 + self.process.num_masks], dim=-1)
        weights = torch.ones(ids.shape, device=ids.device)
        if given is not None:
            weights[..., 1] = (~given).to(weights.dtype)
        return Mixture(weights, ids)

    def condition(self, logits: Float[Tensor, "*shape V"], x_t: Ids, t: Time) -> Float[Tensor, "*shape V"]:
        """The prediction given x_t and x_1^l at hidden positions, as logits in float32 or better.

        To a network that is shown x_1 nothing is added. One that sees x_t alone gave p(x_0^l | x_t), and had to leave
        open whether x_t^l = j is the designated mask or x_1^l. By Bayes' rule its prediction is
        multiplied by p(x_t^l | a, x_1^l) / p(x_t^l | a): at another mask than x_1 only the tokens of that mask remain;
        at x_1 the tokens of j are divided by 1 + (M - 1) beta_t. This is exact where x_1^l is uniform given x_0; what
        x_1 tells at the other positions is not made use of.
        """
        logits = widened(logits)
        M = self.process.num_masks
        if M == 1 or self.process.noise_shown:
            return logits
        at_x_1 = x_t == self.x_1
        beta_t = self.process.schedule(per_position("t", t, x_t)).beta
        # log of p(x_t | a, x_1) / p(x_t | a), up to a number: for the tokens a of the mask that is seen, and for others
        own = torch.where(at_x_1, -torch.log1p((M - 1) * beta_t), 0.0).to(logits.dtype)
        others = torch.where(at_x_1, 0.0, -torch.inf).to(logits.dtype)
        tokens = torch.arange(self.process.vocab_size, device=logits.device)
        explained = self.process.designated_mask(tokens) == beside(x_t, logits)[..., None]
        return logits + torch.where(explained, beside(own, logits)[..., None], beside(others, logits)[..., None])

    def loss(self, logits: Float[Tensor, "*shape V"], x_0: Ids, x_t: Ids, t: Time) -> LossTerms:
        """Both terms of the loss density of -log p(x_0 | x_1).

        Back in time a path leaves x_1 for its token at the rate -alpha'/(1 - alpha), whatever the token, and for its
        designated mask, if that is another, at the rate b = -beta'/(1 - beta). The model leaves with the same rates for
        what it predicts. With pi_j the predicted probability of the tokens of mask j, the terms of the path measures'
        divergence at hidden positions are -alpha'/(1 - alpha) (-log p(x_0)), and at x_1 alone b (1 - pi_{x_1}) if
        m(x_0) = x_1, else b (-pi_{x_1} - log pi_{m(x_0)}). Their time integral bounds -log p(x_0 | x_1).
        """
        V = self.process.vocab_size
        log_probs = self.condition(logits, x_t, t).log_softmax(-1)
        v = self.process.schedule(per_position("t", t, x_t))
        hidden = self.process.active(x_t)

        # -alpha'/(1 - alpha) (-log p(x_0))
        log_p_x_0 = at_home(log_probs.gather(-1, beside(x_0, log_probs)[..., None])[..., 0])
        reconstruction = torch.where(hidden, v.d_alpha / v.one_minus_alpha * log_p_x_0, 0.0)

        # pi_j, the sum of p over the tokens of mask j
        home = self.process.designated_mask(x_0)
        groups = self.process.designated_mask(torch.arange(V, device=log_probs.device)) - V
        pi = log_probs.new_zeros((*x_0.shape, self.process.num_masks)).index_add(-1, groups, log_probs.exp())
        pi = at_home(pi)
        pi_x_1 = pi.gather(-1, (self.x_1 - V)[..., None])[..., 0]
        pi_home = pi.gather(-1, (home - V)[..., None])[..., 0]

        # b (1 - pi_{x_1}) or b (-pi_{x_1} - log pi_{m(x_0)}), while the path is at x_1
        leaves = torch.where(home == self.x_1, 1 - pi_x_1, -pi_x_1 - pi_home.log())
        identification = torch.where(x_t == self.x_1, -v.d_beta / v.one_minus_beta * leaves, 0.0)
        return LossTerms(reconstruction, identification)

    def _states(self, x_0: Tensor, v: ScheduleValues, generator: Generator) -> Int64[Tensor, "..."]:
        """x_0 until alpha falls below one number, m(x_0) until beta falls below another, and x_1 from then on."""
        check_ids("x_0", x_0, self.process.vocab_size)
        check_ids("x_1", self.x_1, self.process.num_states)
        check_same_shape("x_0", x_0, "x_1", self.x_1)
        u = uniform((*x_0.shape, 2), generator, x_0.device)
        leave_token = u[..., 0]
        leave_mask = u[..., 1]
        # u < alpha_t: the token; else u' < beta_t: its mask; else x_1
        mask = torch.where(leave_mask < v.beta, self.process.designated_mask(x_0), self.x_1)
        return torch.where(leave_token < v.alpha, x_0.long(), mask)
