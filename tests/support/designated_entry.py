"""The designated-entry chain of Prop. (entry_mixing_equivalence): enter at the designated mask, then mix.

It has the one-time marginals of `MultiMask` and another two-time kernel. Nothing trains or samples with it; it is
here because it explains the process, and to check the proposition.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from multimdm._checks import require
from multimdm.process.base import Ids, with_zero_columns
from multimdm.process.checks import check_ids, kind_of
from multimdm.process.multimask import MultiMask
from multimdm.process.schedule import Time, check_order, check_time

_PANELS, _NODES = 14, 24


class DesignatedEntry:
    """A clean token jumps to its mask at rate lambda_t; masks refresh uniformly at total rate gamma_t."""

    def __init__(self, process: MultiMask) -> None:
        require(isinstance(process, MultiMask), f"process must be a MultiMask; got {kind_of(process)}")
        self.process = process
        self._nodes, self._weights = _graded_rule(_PANELS, _NODES)

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
        s, t = float(s), float(t)
        V, M = self.process.vocab_size, self.process.num_masks
        hidden = self.process.active(x_s)
        from_clean, from_mask = self._from_clean(s, t), self._from_mask(s, t)
        kept, lost = (torch.where(hidden, one, other) for one, other in zip(from_mask, from_clean, strict=True))
        result = kept.new_zeros((*x_s.shape, V + M))
        result[..., V:] = (lost / M)[..., None]
        result.scatter_add_(-1, self.process.designated_mask(x_s)[..., None], kept[..., None])
        stays = torch.where(hidden, 0.0, torch.exp(self._log_time(s) - self._log_time(t)))
        return result.scatter_add_(-1, x_s[..., None].long(), stays[..., None])

    def _from_mask(self, s: float, t: float) -> tuple[Tensor, Tensor]:
        """exp(-Gamma_{s,t}) and its complement: a mask is not refreshed between s and t, or it is."""
        refreshed = self._integrated_refresh(self._log_time(s), self._log_time(t))
        return torch.exp(-refreshed), -torch.expm1(-refreshed)

    def _from_clean(self, s: float, t: float) -> tuple[Tensor, Tensor]:
        """int_s^t lambda_u exp(-Lambda_{s,u}) exp(-Gamma_{u,t}) du, entered and not refreshed since; and refreshed."""
        lower, upper = self._log_time(s), self._log_time(t)
        if bool(torch.isinf(upper)):
            return torch.zeros_like(upper), torch.ones_like(upper)
        entry = lower + (upper - lower) * self._nodes  # in this clock Lambda_{s,u} is entry - lower
        density = (upper - lower) * self._weights * torch.exp(lower - entry)
        refreshed = self._integrated_refresh(entry, upper)
        return (density * torch.exp(-refreshed)).sum(), (density * -torch.expm1(-refreshed)).sum()

    def _log_time(self, t: float) -> Tensor:
        """y = -log alpha_t, the clock in which entry has rate one."""
        v = self.process.schedule(torch.tensor(t, dtype=torch.float64))
        return torch.where(v.alpha > 0.5, -torch.log1p(-v.one_minus_alpha), -torch.log(v.alpha))

    def _integrated_refresh(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Gamma between two values of y = -log alpha: int [(1 - e^{-rho y}) e^{(rho-1) y} / (1 - e^{-y}) + rho] dy."""
        rho = self.process.schedule.rho
        if bool(torch.isinf(upper)):
            return torch.full_like(lower, torch.inf)
        span = (upper - lower)[..., None]
        y = lower[..., None] + span * self._nodes
        ratio = torch.where(y > 0, torch.expm1(-rho * y) / torch.expm1(-y), rho)
        return (span * self._weights * (ratio * torch.exp((rho - 1) * y))).sum(-1) + rho * (upper - lower)


def _graded_rule(panels: int, n: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights on [0, 1]: Gauss-Legendre on panels that halve towards 1, where the integrands rise steeply.

    The nodes of a panel are, by Golub and Welsch, eigenvalues of the recurrence's Jacobi matrix.
    """
    k = torch.arange(1, n, dtype=torch.float64)
    off_diagonal = k / torch.sqrt(4 * k**2 - 1)
    nodes, vectors = torch.linalg.eigh(torch.diag(off_diagonal, 1) + torch.diag(off_diagonal, -1))
    edges = 1 - 0.5 ** torch.arange(panels, dtype=torch.float64)
    edges = torch.cat([edges, torch.ones(1, dtype=torch.float64)])
    width = edges.diff()[:, None]
    return (edges[:-1, None] + width * (1 + nodes) / 2).flatten(), (width * vectors[0] ** 2).flatten()
