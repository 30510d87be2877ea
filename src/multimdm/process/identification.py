"""The intra-mask identification term, second line of Eq. (per_coordinate_loss_main).

For a token at mask k the term compares, for every other mask j, the ratio psi(j|k) = r_t(j) / r_t(k) of the truth
with the model's psi_theta(j|k). The printed form, eq. (psi_theta_simplified_app), cancels near t = 0, and the weight
-d_beta / (M beta) is infinite at t = 1, where the bracket vanishes. So everything is written with positive terms in
    c = M beta / (1 - beta),   C = 1 + c,   A = 1 / C,
    psi_theta(j) = A m_k + (sum of the other m) + c m_j,
    psi_theta(j) - psi(j) = c e_j,
and the bracket psi phi(psi_theta / psi), phi(x) = x - 1 - log x, is c^2 e_j^2 / psi times a smooth function, so that
c^2 and the weight join to something finite at t = 1.

Shapes: N packed positions; masses m [N, M]; the designated and the current mask k are indices [N].
"""

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor
from torch.autograd.function import once_differentiable

from multimdm.process.places import fused
from multimdm.process.schedule import ScheduleValues

_SMALL = 1 / 8


def identification(
    masses: Float64[Tensor, "N M"],
    designated: Int64[Tensor, " N"],
    current: Int64[Tensor, " N"],
    values: ScheduleValues,
    active: Bool[Tensor, " N"],
) -> Float64[Tensor, " N"]:
    """The identification term for group masses m = T p; zero where not active. Needs M >= 2.

    Finite at t = 1 for rho >= 1/2; for smaller rho it grows there like alpha^(2 rho - 1), which is integrable.
    """
    return _Identification.apply(masses, designated, current, values, active)


class _Identification(torch.autograd.Function):
    @staticmethod
    def forward(ctx, masses, designated, current, values, active):  # pyright: ignore[reportIncompatibleMethodOverride]
        of_rows = (designated, current, values.beta, values.one_minus_beta, values.hazard_beta, values.beta_decay)
        loss, gradient = _loss_and_gradient(masses, *(x[:, None] for x in of_rows))
        ctx.save_for_backward(torch.where(active[:, None], gradient, 0.0))
        return torch.where(active, loss, 0.0)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        (gradient,) = ctx.saved_tensors
        return grad[:, None] * gradient, None, None, None, None


@fused
def _loss_and_gradient(
    masses: Tensor, designated: Tensor, current: Tensor, beta: Tensor, lost: Tensor, hazard: Tensor, decay: Tensor
) -> tuple[Tensor, Tensor]:
    M = masses.shape[-1]
    c = M * beta / lost
    A = lost / (M * beta + lost)
    C = 1 + c
    same = designated == current

    # m_k, the sum of the other m, and that of all but m_k and the designated mask's
    m_k = masses.gather(-1, current)
    others = masses.scatter(-1, current, 0.0)
    rest = others.sum(-1, keepdim=True)
    unrelated = others.scatter(-1, designated, 0.0).sum(-1, keepdim=True)

    # psi(j|k): A everywhere if k is the designated mask; else C at the designated mask and 1 at the others.
    psi = torch.where(same, A, torch.ones_like(masses))
    e = torch.where(same, A * rest + masses, masses - A * m_k)
    psi = psi.scatter(-1, designated, torch.where(same, A, C))
    e = e.scatter(-1, designated, -((1 + A) * m_k + unrelated))  # where same, this is the column k, dropped below
    psi_theta = A * m_k + rest + c * masses

    weight = hazard / M
    root = torch.sqrt(decay * M) / lost  # root^2 = weight c^2, finite at t = 1
    delta = c * e / psi
    rooted = torch.where(e == 0, 0.0, root * e)  # root is infinite at t = 1 for rho < 1/2
    small = rooted**2 / psi * _excess_over_square(delta)
    large = weight * (c * e - psi * torch.log(psi_theta / psi))
    terms = torch.where(delta.abs() < _SMALL, small, large).scatter(-1, current, 0.0)

    # On the simplex d psi_theta(j) / d m_j = c and d psi_theta(j) / d m_k = -c A.
    gradient = (root * (rooted / psi_theta)).scatter(-1, current, 0.0)
    gradient = gradient.scatter(-1, current, -A * gradient.sum(-1, keepdim=True))
    return terms.sum(-1), gradient


def _excess_over_square(delta: Tensor) -> Tensor:
    """(delta - log(1 + delta)) / delta^2 for |delta| <= 1/8, by the series of atanh in z = delta / (2 + delta)."""
    z = delta / (2 + delta)
    z_squared = z * z
    series = torch.zeros_like(z)
    for power in range(7, -1, -1):
        series = series * z_squared + 1 / (2 * power + 3)
    return (1 - 2 * z / (2 + delta) * series) / (2 + delta)
