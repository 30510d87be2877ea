"""The kernels of multi-mask diffusion (Sec. 3.1) on all V + M states at once: for small spaces, and to be looked at.

Nothing that trains or samples builds such a table: `multimask.py` has the draws and the loss that take its place. Tests
compare the two.

Shapes: x_0, x_s and x_t are ids [*shape]; predictions [*shape, V]; kernels [*shape, V + M], the columns of the masks
behind those of the tokens.
"""

from abc import abstractmethod

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from multimdm.process.assignment import Groups
from multimdm.process.base import Ids, Process, with_zero_columns
from multimdm.process.checks import check_ids
from multimdm.process.refresh import bridge_average, bridge_posterior, bridge_weights
from multimdm.process.schedule import ScheduleValues, Time, time_dtype


class MaskKernels(Process):
    """The dense kernels of a process on V clean tokens and M masks."""

    @abstractmethod
    def designated_mask(self, x: Ids) -> Int64[Tensor, "*shape"]:
        """The id m_x of each clean token's mask; a mask keeps its id."""

    @abstractmethod
    def _mask_index(self, x: Tensor) -> Int64[Tensor, "..."]:
        """0..M-1: which mask a mask is, or is designated for a clean token."""

    @abstractmethod
    def _groups_on(self, device: torch.device) -> Groups:
        """The tokens of each mask on this device."""

    def marginal(self, x_0: Ids, t: Time) -> Float[Tensor, "*shape states"]:
        """p_t(. | x_0) = alpha_t 1{x_0} + (1 - alpha_t) r_t^{x_0}. Eq. (forward_marginal_single)."""
        check_ids("x_0", x_0, self.vocab_size)
        dtype = time_dtype(t)
        v = self._at("t", t, x_0).to(dtype)
        return self._from_clean(x_0, v.alpha, v.one_minus_alpha, v).to(dtype)

    def transition(self, x_s: Ids, s: Time, t: Time) -> Float[Tensor, "*shape states"]:
        """p_{t|s}(. | x_s). Eq. (two_time_kernel_main)."""
        check_ids("x_s", x_s, self.num_states)
        dtype = time_dtype(s, t)
        b = self._between(s, t, x_s).to(dtype)
        v = self._at("t", t, x_s).to(dtype)
        # alpha_{t|s} 1{x_s} + (1 - alpha_{t|s}) r_t^{x_s} from a token
        from_clean = self._from_clean(x_s.clamp_max(self.vocab_size - 1), b.alpha, b.one_minus_alpha, v)
        # beta_{t|s} 1{x_s} + (1 - beta_{t|s}) / M from a mask
        from_mask = torch.zeros_like(from_clean)
        from_mask[..., self.vocab_size :] = (b.one_minus_beta / self.num_masks)[..., None]
        mask = x_s.clamp_min(self.vocab_size).long()
        from_mask.scatter_add_(-1, mask[..., None], b.beta.expand(x_s.shape)[..., None])
        return torch.where(self.active(x_s)[..., None], from_mask, from_clean).to(dtype)

    def posterior(self, x_0: Ids, x_t: Ids, s: Time, t: Time) -> Float[Tensor, "*shape states"]:
        """p_{s|t}(. | x_t, x_0). Eq. (two_time_backward_main); a visible x_t stays."""
        self._check_pair(x_0, x_t)
        dtype = time_dtype(s, t)
        between = self._between(s, t, x_t)
        b = between.to(dtype)
        designated = self._mask_index(x_0)
        current = self._mask_index(x_t)
        # p(revealed) 1{x_0} + p(still hidden) p(mask at s | mask at t, designated mask)
        retentions = self._bridge_retentions(s, t, x_t, between)
        weights = bridge_weights(designated == current, *retentions, self.num_masks)
        hidden = bridge_posterior(weights.to(b.reveal.dtype), designated, current, self.num_masks)
        result = hidden.new_zeros((*x_t.shape, self.num_states))
        result[..., self.vocab_size :] = b.still_hidden[..., None] * hidden
        result.scatter_(-1, x_0[..., None].long(), b.reveal.expand(x_t.shape)[..., None])
        return self._keep_visible(result, x_t).to(dtype)

    def reverse(
        self, clean_probs: Float[Tensor, "*shape V"], x_t: Ids, s: Time, t: Time
    ) -> Float[Tensor, "*shape states"]:
        """p^theta_{s|t}(. | x_t) = sum_a x_theta(a) p_{s|t}(. | x_t, a). Eq. (model_reverse_kernel_main)."""
        self._check_prediction("clean_probs", clean_probs, x_t)
        clean_probs = self._posterior_probs(clean_probs, x_t, t)
        between = self._between(s, t, x_t)
        b = between.to(clean_probs.dtype)
        retentions = self._bridge_retentions(s, t, x_t, between)
        working = b.reveal.dtype
        # p(revealed) x_theta + p(still hidden) sum_j (T x_theta)_j p(mask at s | mask at t, designated mask j)
        hidden = bridge_average(
            self._groups_on(x_t.device).sum(clean_probs.to(working)),
            self._mask_index(x_t),
            bridge_weights(True, *retentions, self.num_masks).to(working),
            bridge_weights(False, *retentions, self.num_masks).to(working),
            self.num_masks,
        )
        result = torch.cat([b.reveal[..., None] * clean_probs, b.still_hidden[..., None] * hidden], dim=-1)
        return self._keep_visible(result, x_t).to(clean_probs.dtype)

    def rates(self, t: Time) -> Float[Tensor, "*times states states"]:
        """The generator R_t[destination, source]; columns sum to zero. Eqs. (forward_rates_app, _masks_app).

        Infinite at t = 1, where the last tokens must leave in no time.
        """
        v = self.schedule(t)
        V = self.vocab_size
        M = self.num_masks
        tokens = torch.arange(V, device=v.alpha.device)
        rates = v.alpha.new_zeros((*v.alpha.shape, self.num_states, self.num_states))
        if M == 1:  # r_t = 1 at the only mask
            rates[..., V:, :V] = v.hazard_alpha[..., None, None]
        else:  # from a token, -(alpha' / alpha) r_t^x; r_t^x = beta + (1 - beta) / M at its designated mask
            rates[..., V:, :V] = (v.hazard_alpha * v.one_minus_beta / M)[..., None, None]
            designated = v.hazard_alpha * (v.beta + v.one_minus_beta / M)
            rates[..., V + self._groups_on(tokens.device).assignment, tokens] = designated[..., None]
        # from a mask to any other, -(beta' / beta) / M
        rates[..., V:, V:] = (v.hazard_beta / M)[..., None, None]
        return with_zero_columns(rates)

    def model_scores(self, clean_probs: Float[Tensor, "*shape V"], x_t: Ids, t: Time) -> Float[Tensor, "*shape states"]:
        """s_theta(x_t). Eqs. (model_clean_score_app, model_mask_score_app), the latter in positive terms.

        At a visible x_t the clean token is known, and these are its own scores.
        """
        self._check_prediction("clean_probs", clean_probs, x_t)
        clean_probs = self._posterior_probs(clean_probs, x_t, t)
        v = self._at("t", t, x_t)
        hidden = self.active(x_t)
        working = torch.promote_types(clean_probs.dtype, torch.float32)
        probs = clean_probs.to(working)
        current = self._mask_index(x_t)[..., None]
        # r_t = beta + (1 - beta) / M at the designated mask, (1 - beta) / M at the others
        elsewhere = v.one_minus_beta / self.num_masks
        at_home = v.beta + elsewhere

        def where_hidden(ratio: Tensor) -> Tensor:
            """At visible positions ratios are not used, and may be infinite: a number keeps their gradients zero."""
            return torch.where(hidden, ratio, 0.0).to(working)[..., None]

        # to a token a: alpha x_theta(a) / ((1 - alpha) r_t^a(k))
        to_home = where_hidden(v.alpha / v.one_minus_alpha / at_home)
        to_others = where_hidden(v.alpha / v.one_minus_alpha / elsewhere)
        to_clean = torch.where(self._groups_on(x_t.device).assignment == current, to_home, to_others) * probs
        # to another mask j: A m_k + (sum of the other m) + c m_j, c = M beta / (1 - beta), A = 1 / (1 + c)
        A = where_hidden(elsewhere / at_home)
        c = where_hidden(v.beta / elsewhere)
        masses = self._groups_on(x_t.device).sum(probs)
        others = masses.scatter(-1, current, 0.0)
        psi = A * masses.gather(-1, current) + others.sum(-1, keepdim=True) + c * others
        from_hidden = torch.cat([to_clean, psi.scatter(-1, current, 1.0)], dim=-1)
        v = v.to(working)
        visible = self._from_clean(x_t.clamp_max(self.vocab_size - 1), v.alpha, v.one_minus_alpha, v)
        return torch.where(hidden[..., None], from_hidden, visible / v.alpha[..., None]).to(clean_probs.dtype)

    # ----------------------------------------------------------------- helpers

    def _posterior_probs(self, prediction: Tensor, x_t: Tensor, t: Time) -> Tensor:
        """p(x_0 | x_t) of a prediction, normalised if it is one from the context."""
        if self.readout == "posterior":
            return prediction
        weights = self.posterior_weights(prediction, x_t, t)
        return weights / weights.sum(-1, keepdim=True)

    def _from_clean(self, x: Tensor, stay: Tensor, leave: Tensor, v: ScheduleValues) -> Tensor:
        """stay 1{x} + leave r_t^x, with r_t^x of Eq. (rt_def)."""
        result = stay.new_zeros((*x.shape, self.num_states))
        result[..., self.vocab_size :] = (leave * v.one_minus_beta / self.num_masks)[..., None]
        result.scatter_(-1, x[..., None].long(), stay.expand(x.shape)[..., None])
        designated = self.designated_mask(x)
        return result.scatter_add_(-1, designated[..., None], (leave * v.beta).expand(x.shape)[..., None])

    def _keep_visible(self, result: Tensor, x_t: Tensor) -> Tensor:
        """The kernel at masked positions; all mass on x_t at visible ones."""
        stays = torch.zeros_like(result).scatter_(-1, x_t[..., None].long(), 1.0)
        return torch.where(self.active(x_t)[..., None], result, stays)
