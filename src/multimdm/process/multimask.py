"""Multi-mask diffusion (Sec. 3.1-3.2): M masks, each clean token with its designated one.

Clean tokens are the ids 0 .. V-1, masks V .. V+M-1. A token leaves the clean state as alpha_t falls and then sits at
its designated mask with probability beta_t, else at any mask uniformly. One mask is masked diffusion (MDLM).

Here are draws, loss and shared-Gumbel paths; `mask_kernels.py` has the kernels on all V + M states, which none of them
builds.

Shapes: x_0, x_s, x_t and `clean` are ids [*shape]; predictions [*shape, V]; a loss reads N packed rows.
"""

import functools
from collections.abc import Callable, Sequence
from typing import get_args

import torch
from jaxtyping import Bool, Float, Float64, Int, Int64
from torch import Tensor

from multimdm._checks import require
from multimdm.process.assignment import Groups, check_assignment, check_sizes, modulo, own_masks
from multimdm.process.base import Ids, NoiseKind, Path, RowReader, flat_values
from multimdm.process.checks import check_ids, check_same_shape, check_table, checks_contents, kind_of
from multimdm.process.draws import Generator, pick, uniform
from multimdm.process.identification import identification
from multimdm.process.mask_kernels import MaskKernels
from multimdm.process.own_mask import join_logits, join_masses, join_weights, others_factor
from multimdm.process.places import beside, fused, widened
from multimdm.process.refresh import bridge_draw, bridge_weights
from multimdm.process.schedule import (
    BetweenValues,
    Retention,
    Schedule,
    ScheduleValues,
    Time,
    check_schedule,
)
from multimdm.process.settings import Readout
from multimdm.process.shared_noise import GumbelNoise, draw_noise, first_other, rival_state
from multimdm.process.values import LossTerms


class MultiMask(MaskKernels):
    """The multi-mask process on V clean tokens and M masks; `MultiMask(V, 1)` is MDLM's."""

    def __init__(
        self,
        vocab_size: int,
        num_masks: int = 1,
        schedule: Schedule | None = None,
        assignment: Int[Tensor, " V"] | None = None,
        tied_noise: bool = False,
        noise_shown: bool = False,
        readout: Readout = "posterior",
    ) -> None:
        # Noise that is tied to the text tells by which mask it is, whether or not the mask is some token's.
        check_sizes(vocab_size, num_masks, spare=tied_noise)
        if assignment is None:
            assignment = own_masks(vocab_size) if num_masks > vocab_size else modulo(vocab_size, num_masks)
        check_assignment(assignment, vocab_size, num_masks, spare=tied_noise)
        self.vocab_size = int(vocab_size)
        self.num_masks = int(num_masks)
        self.schedule = check_schedule(schedule)
        self.assignment = assignment.long()
        require(tied_noise or not noise_shown, "noise_shown must be False unless noise is tied, and kept; got True")
        self.tied_noise = tied_noise
        self.noise_shown = noise_shown
        self.readout = self._check_readout(readout)
        """With one mask, which tells nothing, both readouts are the same, and called posterior."""
        self._groups = {self.assignment.device: Groups(self.assignment, num_masks)}

    def __repr__(self) -> str:
        tied = f", tied_noise=True, noise_shown={self.noise_shown}" if self.tied_noise else ""
        read = ", readout='context'" if self.readout == "context" else ""
        sizes = f"vocab_size={self.vocab_size}, num_masks={self.num_masks}"
        return f"MultiMask({sizes}, schedule={self.schedule}{tied}{read})"

    def tied(self, noise_shown: bool = False) -> "MultiMask":
        """The same process with its noise tied to the texts; predictions are posteriors then, given x_1 too."""
        return MultiMask(self.vocab_size, self.num_masks, self.schedule, self.assignment, True, noise_shown)

    def path_to(self, x_1: Ids | None = None) -> Path:
        """Paths from x_0 to this x_1 if the noise is tied, else to any noise."""
        from multimdm.process.tied import TiedPath  # which knows this class

        if not self.tied_noise:
            return Path(self, None)
        require(x_1 is not None, "x_1 must be given for a process whose noise is tied to the text; got None")
        assert x_1 is not None
        return TiedPath(self, x_1.long())

    def prior(
        self, shape: Sequence[int], generator: Generator = None, device: torch.device | str | None = None
    ) -> Int64[Tensor, "..."]:
        """x_1 ~ u_M: every position at a uniform mask."""
        return self.vocab_size + pick(uniform(shape, generator, device), self.num_masks)

    def active(self, x_t: Ids) -> Bool[Tensor, "*shape"]:
        """The masked positions."""
        check_ids("x_t", x_t, self.num_states)
        return x_t >= self.vocab_size

    def designated_mask(self, x: Ids) -> Int64[Tensor, "*shape"]:
        """The id m_x of each clean token's mask; a mask keeps its id."""
        check_ids("x_t", x, self.num_states)
        return _designated(x, self._assignment(x.device), self.vocab_size)

    # ------------------------------------------------------------------- draws

    def corrupt(self, x_0: Ids, t: Time, generator: Generator = None) -> Int64[Tensor, "*shape"]:
        """x_t ~ p_t(. | x_0), by one number per position."""
        check_ids("x_0", x_0, self.vocab_size)
        v = self._at("t", t, x_0)
        u = uniform(x_0.shape, generator, x_0.device)
        # u < (1 - alpha)(1 - beta): any mask; below 1 - alpha: the designated one; else the token
        refreshed = v.one_minus_alpha * v.one_minus_beta
        mask = self.vocab_size + pick((u / refreshed).clamp_max(1.0), self.num_masks)
        hidden = torch.where(u < refreshed, mask, self.designated_mask(x_0))
        return torch.where(u < v.one_minus_alpha, hidden, x_0.long())

    def masks_of(self, x_0: Ids, t: Time, generator: Generator = None) -> Int64[Tensor, "*shape"]:
        """x_t ~ r_t^{x_0}: the designated mask or, with probability 1 - beta_t, any. Eq. (rt_def)."""
        check_ids("x_0", x_0, self.vocab_size)
        v = self._at("t", t, x_0)
        stray = uniform(x_0.shape, generator, x_0.device)
        which = uniform(x_0.shape, generator, x_0.device)
        anywhere = self.vocab_size + pick(which, self.num_masks)
        return torch.where(stray < v.one_minus_beta, anywhere, self.designated_mask(x_0))

    def transition_sample(self, x_s: Ids, s: Time, t: Time, generator: Generator = None) -> Int64[Tensor, "*shape"]:
        """x_t ~ p_{t|s}(. | x_s), by one number per position. Eq. (two_time_kernel_main)."""
        check_ids("x_s", x_s, self.num_states)
        b = self._between(s, t, x_s)
        v = self._at("t", t, x_s)
        u = uniform(x_s.shape, generator, x_s.device)
        hidden = self.active(x_s)
        # A token leaves with probability 1 - alpha_{t|s}, to r_t; a mask is refreshed with probability 1 - beta_{t|s}.
        leaves = torch.where(hidden, 1.0, b.one_minus_alpha)  # is at a mask at t
        refreshed = torch.where(hidden, b.one_minus_beta, b.one_minus_alpha * v.one_minus_beta)
        mask = self.vocab_size + pick((u / refreshed).clamp_max(1.0), self.num_masks)
        x_t = torch.where(u < refreshed, mask, self.designated_mask(x_s))
        return torch.where(u < leaves, x_t, x_s.long())

    def posterior_weights(self, weights: Float[Tensor, "*shape V"], x_t: Ids, t: Time) -> Float[Tensor, "*shape V"]:
        """The prediction, if that is the posterior; one from the context times p_t(x_t | .), up to a factor."""
        if self.readout == "posterior":
            return weights
        self._check_prediction("weights", weights, x_t)
        joined = join_weights(widened(weights), self._explained(beside(x_t, weights)), self._others_factor(x_t, t))
        return joined.to(weights.dtype)

    def posterior_logits(self, logits: Float[Tensor, "*shape V"], x_t: Ids, t: Time) -> Float[Tensor, "*shape V"]:
        """The prediction, if that is the posterior; one from the context with the evidence of x_t, as in `own_mask.py`.

        At t = 0, where the evidence is infinite and nothing is hidden, only the tokens of the mask remain.
        """
        if self.readout == "posterior":
            return logits
        check_ids("x_t", x_t, self.num_states)
        check_table("logits", logits, x_t, self.vocab_size)
        return join_logits(widened(logits), self._explained(beside(x_t, logits)), self._others_factor(x_t, t))

    def reverse_sample(
        self, clean: Ids, x_t: Ids, s: Time, t: Time, generator: Generator = None
    ) -> Int64[Tensor, "*shape"]:
        """x_s ~ p_{s|t}(. | x_t, clean), by one number per position. Eq. (backward_kernel_masks_app).

        With `clean` drawn from the network's prediction this is a draw from `reverse`. A visible x_t stays; s = 0
        leaves no mask.
        """
        check_ids("clean", clean, self.vocab_size)
        check_ids("x_t", x_t, self.num_states)
        check_same_shape("clean", clean, "x_t", x_t)
        between = self._between(s, t, x_t)
        return self.reveal(clean, x_t, between, generator, lambda u: self._remain(clean, x_t, s, t, between, u))

    def reveal(
        self, clean: Ids, x_t: Ids, between: BetweenValues, generator: Generator, remain: Callable[[Tensor], Tensor]
    ) -> Int64[Tensor, "*shape"]:
        """`clean` with probability (alpha_s - alpha_t) / (1 - alpha_t), else what `remain` makes of one more number."""
        u = uniform(x_t.shape, generator, x_t.device)
        # uniform again, given that the position stays hidden
        left = ((u - between.reveal) / between.still_hidden).clamp(0.0, 1.0)
        x_s = torch.where(u < between.reveal, clean.long(), remain(left))
        return torch.where(self.active(x_t), x_s, x_t.long())

    def remain(self, clean: Ids, x_t: Ids, s: Time, t: Time, u: Float[Tensor, "*shape"]) -> Int64[Tensor, "*shape"]:
        """x_s ~ p_{s|t}(. | x_t, clean, x_s masked): the mask factor of Eq. (two_time_backward_main).

        The bridge leads from the current mask towards the one that the hypothesis designates, by one number each. At
        visible positions the result means nothing.
        """
        return self._remain(clean, x_t, s, t, self._between(s, t, x_t), u)

    def _remain(self, clean: Tensor, x_t: Tensor, s: Time, t: Time, between: BetweenValues, u: Tensor) -> Tensor:
        target = self._mask_index(clean)
        current = self._mask_index(x_t)
        retentions = self._bridge_retentions(s, t, x_t, between)
        weights = bridge_weights(target == current, *retentions, self.num_masks)
        return self.vocab_size + bridge_draw(u, weights, target, current, self.num_masks)

    # -------------------------------------------------------------------- loss

    def _loss(self, read: RowReader, table: Tensor, x_0: Tensor, x_t: Tensor, t: Time) -> LossTerms:
        """Both terms of the loss density at masked positions, zero at visible ones. Eq. (per_coordinate_loss_main).

        With readout context the evidence of the own mask joins the prediction here. The time integral of the total is
        the ELBO: the entropy of the data for the exact prediction. Diverges at t = 1 for rho < 1/2 (integrably), and at
        t = 0, where nothing is masked; in float32 its gradient, of order (M / t)^2 for a wrong prediction, is in range
        for t above 1e-8.
        """
        v = flat_values(self._at("t", t, x_0), x_0.shape)
        rows = table.reshape(-1, self.vocab_size)
        clean = x_0.reshape(-1).long()
        state = x_t.reshape(-1)
        active = self.active(state)
        if self.num_masks == 1:
            picked = read.picked(rows, clean)
            term = torch.zeros_like(v.alpha)
        else:
            picked, masses = read.group_masses(rows, clean, self._groups_on(rows.device))
            masses = masses.double()
            designated = self._mask_index(clean)
            current = self._mask_index(state)
            if self.readout == "context":
                others = torch.where(active, others_factor(v, self.num_masks), 1.0)
                picked, masses = join_masses(picked, masses, designated, current, others)
            term = identification(masses, designated, current, v, active)
        # -alpha'_t / (1 - alpha_t) (-log p(x_0)), where the token is hidden
        weight = torch.where(active, -v.d_alpha / v.one_minus_alpha, 0.0)
        reconstruction = -weight * torch.where(active, picked, 0.0)
        dtype = torch.promote_types(rows.dtype, torch.float32)
        return LossTerms(reconstruction.to(dtype).view(x_0.shape), term.to(dtype).view(x_0.shape))

    # ------------------------------------------------------------------- paths

    def noise(
        self,
        shape: Sequence[int],
        generator: Generator = None,
        device: torch.device | str | None = None,
        noise: NoiseKind = "gumbel",
    ) -> GumbelNoise:
        """The randomness of shared-Gumbel paths: three exponentials and an index per position."""
        require(noise == "gumbel", f"noise must be 'gumbel' for a masked process; got {noise!r}")
        return draw_noise(tuple(shape), self.num_masks, generator, device)

    def noise_of(self, exponentials: Float[Tensor, "*rows states"], x_0: Int[Tensor, "*rows k"]) -> GumbelNoise:
        """What a full set of V+M exponentials (exp of minus the Gumbels) means for each of k clean tokens."""
        masks = exponentials[..., self.vocab_size :]
        designated = self._mask_index(x_0)
        others, rival = first_other(masks, designated)
        return GumbelNoise(exponentials.gather(-1, x_0.long()), masks.gather(-1, designated), others, rival)

    def _check_noise(self, noise: GumbelNoise) -> None:
        require(
            isinstance(noise, GumbelNoise),
            f"noise must be a GumbelNoise, as `noise(shape)` gives it; got {kind_of(noise)}",
        )

    def _path(self, x_0: Tensor, noise: GumbelNoise, values: ScheduleValues) -> Int64[Tensor, "..."]:
        """Eq. (gumbel_coupled_path): the first to arrive of x_0, its designated mask and the best other mask.

        For 0 < rho <= 1 a path jumps at most twice, once if M = 1 (Prop. mm_gumbel_two_jumps).
        """
        # the arrivals e_z / p_t(z | x_0) of the token, of its designated mask and of the best other mask
        elsewhere = values.one_minus_alpha * values.one_minus_beta / self.num_masks
        at_clean = noise.clean / values.alpha
        at_designated = noise.designated / (values.one_minus_alpha * values.beta + elsewhere)
        at_rival = noise.others / elsewhere
        designated = self._mask_index(x_0)
        rival = rival_state(designated, noise.rival, self.num_masks)
        mask = self.vocab_size + torch.where(at_designated <= at_rival, designated, rival)
        return torch.where(at_clean <= torch.minimum(at_designated, at_rival), x_0.long(), mask)

    # ----------------------------------------------------------------- helpers

    def _check_readout(self, readout: Readout) -> Readout:
        known = get_args(Readout)
        require(readout in known, f"readout must be one of {', '.join(known)}; got {readout!r}")
        if self.num_masks == 1:
            return "posterior"
        require(
            readout == "posterior" or not self.tied_noise,
            f"readout must be posterior where noise is tied to the text: what the own mask tells depends on x_1, which "
            f"is known too; got {readout!r}",
        )
        return readout

    def _explained(self, x_t: Tensor) -> Bool[Tensor, "*shape V"]:
        """The tokens whose designated mask is seen."""
        return self._assignment(x_t.device) == self._mask_index(x_t)[..., None]

    def _others_factor(self, x_t: Tensor, t: Time) -> Float64[Tensor, "*shape"]:
        """What the tokens of other masks lose; nothing at visible positions, which have no mask."""
        return torch.where(self.active(x_t), others_factor(self._at("t", t, x_t), self.num_masks), 1.0)

    @staticmethod
    def _retention(values: ScheduleValues | BetweenValues) -> Retention:
        return values.masks

    def _groups_on(self, device: torch.device) -> Groups:
        """The tokens of each mask on the device of the ids, copied there once."""
        if device not in self._groups:
            self._groups[device] = self._groups[self.assignment.device].to(device)
        return self._groups[device]

    def _assignment(self, device: torch.device) -> Int64[Tensor, " V"]:
        return self._groups_on(device).assignment

    def _mask_index(self, x: Tensor) -> Int64[Tensor, "..."]:
        """0..M-1: which mask a mask is, or is designated for a clean token."""
        return self.designated_mask(x) - self.vocab_size

    def _check_pair(self, x_0: Tensor, x_t: Tensor) -> None:
        super()._check_pair(x_0, x_t)
        if checks_contents():
            differing = int(((x_t != x_0) & ~self.active(x_t)).sum())
            require(
                differing == 0,
                f"x_t must equal x_0 wherever it is visible; it differs at {differing} positions",
            )


@functools.partial(fused, any_shape=True)
def _designated(x: Tensor, assignment: Tensor, V: int) -> Tensor:
    clean = x.clamp_max(V - 1).long()
    return torch.where(x >= V, x, V + assignment[clean])
