"""The designated-entry chain of Prop. (entry_mixing_equivalence): enter at the designated mask, then mix.

It has the one-time marginals of `MultiMask` and another two-time kernel. Nothing trains or samples with it; it is
here because it explains the process, and to check the proposition.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from multimdm.process.base import Ids, with_zero_columns
from multimdm.process.checks import check_ids
from multimdm.process.multimask import MultiMask
from multimdm.process.times import Time, check_order, check_time

_NODES = 128


class DesignatedEntry:
    """A clean token jumps to its mask at rate lambda_t; masks refresh uniformly at total rate gamma_t."""

    def __init__(self, process: MultiMask) -> None:
        self.process = process
        nodes, weights = _gauss_legendre(_NODES)
        self._nodes, self._weights = nodes, weights

    def entry_rate(self, t: Time) -> Float[Tensor, "*times"]:
        """lambda_t = -d_alpha / alpha."""
        return self.process.schedule(t).hazard_alpha

    def refresh_rate(self, t: Time) -> Float[Tensor, "*times"]:
        """gamma_t = (-d_alpha (1 - beta) - (1 - alpha) d_beta) / ((1 - alpha) beta), finite at t = 0 too."""
        v = self.process.schedule(t)
        ratio = v.one_minus_beta / v.one_minus_alpha
        ratio = torch.where(v.one_minus_alpha > 0, ratio, self.process.schedule.rho)  # its limit at t = 0
        return -v.d_alpha * ratio / v.beta + v.hazard_beta

    def rates(self, t: Time) -> Float[Tensor, "*times states states"]:
        """R~_t[destination, source]. Eq. (entry_mixing_rates_app). Infinite at t = 1."""
        check_time("t", t)
        V, M = self.process.vocab_size, self.process.num_masks
        entry, refresh = self.entry_rate(t), self.refresh_rate(t)
        rates = entry.new_zeros((*entry.shape, V + M, V + M))
        tokens = torch.arange(V)
        rates[..., self.process.designated_mask(tokens), tokens] = entry[..., None]
        rates[..., V:, V:] = (refresh / M)[..., None, None]
        return with_zero_columns(rates)

    def transition(self, x_s: Ids, s: float, t: float) -> Float[Tensor, "*shape states"]:
        """p~_{t|s}(. | x_s) in float64, by quadrature over the unknown time of entry. Rem. (entry_mixing_kernel)."""
        check_ids("x_s", x_s, self.process.num_states)
        check_order(s, t)
        V, M = self.process.vocab_size, self.process.num_masks
        b = self.process.schedule.between(*(torch.tensor(u, dtype=torch.float64) for u in (s, t)))
        kept = torch.where(self.process.active(x_s), self._mask_kept(s, t), self._entered_and_kept(s, t))
        stays = torch.where(self.process.active(x_s), 0.0, b.alpha)
        result = kept.new_zeros((*x_s.shape, V + M))
        result[..., V:] = ((1 - stays - kept) / M)[..., None]
        result.scatter_add_(-1, self.process.designated_mask(x_s)[..., None], kept[..., None])
        return result.scatter_add_(-1, x_s[..., None].long(), stays[..., None])

    def _mask_kept(self, s: float, t: float) -> Tensor:
        """exp(-Gamma_{s,t}): the probability that a mask is not refreshed between s and t."""
        lower, upper = self._log_time(s), self._log_time(t)
        return torch.exp(-self._integrated_refresh(lower, upper))

    def _entered_and_kept(self, s: float, t: float) -> Tensor:
        """int_s^t lambda_u exp(-Lambda_{s,u}) exp(-Gamma_{u,t}) du: entered in between, and still at the mask."""
        lower, upper = self._log_time(s), self._log_time(t)
        if bool(torch.isinf(upper)):
            return torch.zeros_like(upper)
        half = (upper - lower) / 2
        entry = lower + half * (1 + self._nodes)  # in this time Lambda_{s,u} is entry - lower, and its density 1
        survival = torch.exp(-(entry - lower) - self._integrated_refresh(entry, upper))
        return (half * self._weights * survival).sum()

    def _log_time(self, t: float) -> Tensor:
        """y = -log alpha_t, the clock in which entry has rate one."""
        v = self.process.schedule(torch.tensor(t, dtype=torch.float64))
        return torch.where(v.alpha > 0.5, -torch.log1p(-v.one_minus_alpha), -torch.log(v.alpha))

    def _integrated_refresh(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Gamma between two values of y = -log alpha: int [(1 - e^{-rho y}) e^{(rho-1) y} / (1 - e^{-y}) + rho] dy."""
        rho = self.process.schedule.rho
        if bool(torch.isinf(upper)):
            return torch.full_like(lower, torch.inf)
        half = ((upper - lower) / 2)[..., None]
        y = lower[..., None] + half * (1 + self._nodes)
        ratio = torch.where(y > 0, torch.expm1(-rho * y) / torch.expm1(-y), rho)
        return (half * self._weights * (ratio * torch.exp((rho - 1) * y))).sum(-1) + rho * (upper - lower)


def _gauss_legendre(n: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights on [-1, 1] by Golub and Welsch: eigenvalues of the recurrence's Jacobi matrix."""
    k = torch.arange(1, n, dtype=torch.float64)
    off_diagonal = k / torch.sqrt(4 * k**2 - 1)
    jacobi = torch.diag(off_diagonal, 1) + torch.diag(off_diagonal, -1)
    nodes, vectors = torch.linalg.eigh(jacobi)
    return nodes, 2 * vectors[0] ** 2
