"""DUO's Gaussian relaxation of the uniform-state process: soft inputs, and the clock they run on.

The latent w = a~ onehot(x_0) + s~ eps in R^V has its argmax at a draw of the uniform-state process with alpha = T(a~);
a network in the curriculum is shown softmax(w / tau), and its loss is the uniform-state one at the argmax. For small
tau only the few largest entries of w have any weight, and those are drawn directly: O(top) numbers per position, not V.

Shapes: B sequences of L positions; times [*s], any shape; the entries of w that are kept [B, L, top + 1].
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float64, Int, Int64
from torch import Tensor

from multimdm._checks import check_integer, check_positive, require
from multimdm.process.checks import check_ids
from multimdm.process.draws import Generator, pick, uniform
from multimdm.process.schedule import Time, check_time, exact_time, per_position
from multimdm.process.shared_noise import transformation
from multimdm.process.values import Mixture

DEFAULT_TOP = 16
"""Enough for DUO's tau = 1e-3, gamma >= -3.55 and V = 50,257: see `sufficient_top`."""


@dataclass(frozen=True)
class RelaxedTimes:
    """The clock of the relaxation where a fraction u of the range of gamma has passed, in float64."""

    gamma: Float64[Tensor, "*s"]
    """gamma_min + u (gamma_max - gamma_min): minus the logarithm of the squared signal-to-noise ratio."""
    snr: Float64[Tensor, "*s"]
    """a~ / s~ = exp(-gamma / 2)."""
    signal: Float64[Tensor, "*s"]
    """a~ = sqrt(sigmoid(-gamma)), the factor of the one-hot."""
    noise: Float64[Tensor, "*s"]
    """s~ = sqrt(sigmoid(gamma)), the factor of the Gaussians."""
    alpha: Float64[Tensor, "*s"]
    """T(a~): the argmax is a draw of the uniform-state process with this alpha."""
    one_minus_alpha: Float64[Tensor, "*s"]
    """1 - alpha, which is t under the linear schedule."""
    speed: Float64[Tensor, "*s"]
    """-d alpha / du >= 0: what turns a density in t = 1 - alpha into one in u."""


def relaxed_times(u: Time, gamma_min: float | int, gamma_max: float | int, vocab_size: int) -> RelaxedTimes:
    """gamma = gamma_min + u (gamma_max - gamma_min), alpha = T(a~), speed = T'(snr) (snr / 2) (gamma_max - gamma_min).

    With the linear schedule the loss at u is speed * process.loss(log_probs, x_0, x_t, t=one_minus_alpha); its mean
    over u in [0, 1] is the integral of the loss density over t from t(gamma_min) to t(gamma_max). `u` is a number or
    has one entry per sequence; the quadrature takes several hundred numbers for each.
    """
    check_time("u", u)
    check_integer("vocab_size", vocab_size, 2)
    require(
        -math.inf < gamma_min < gamma_max < math.inf,  # false for NaN too
        f"gamma_min must be below gamma_max, both finite; got {gamma_min!r} and {gamma_max!r}",
    )
    u = exact_time(u)
    width = gamma_max - gamma_min
    gamma = gamma_min + u * width
    snr = torch.exp(-gamma / 2)
    value = transformation(snr, vocab_size)
    return RelaxedTimes(
        gamma=gamma,
        snr=snr,
        signal=torch.sqrt(torch.sigmoid(-gamma)),
        noise=torch.sqrt(torch.sigmoid(gamma)),
        alpha=1 - value.one_minus_alpha,  # as the linear schedule makes alpha of t
        one_minus_alpha=value.one_minus_alpha,
        speed=value.slope * snr / 2 * width,
    )


class RelaxedState(NamedTuple):
    """One draw of the latent, as the network is shown it and as the loss sees it."""

    mixture: Mixture
    """softmax(w / tau) over the largest entries of w: weights and ids [B, L, min(top + 1, V)], the largest first."""
    x_t: Int64[Tensor, "B L"]
    """argmax w."""


def relaxed_state(
    x_0: Int[Tensor, "B L"],
    signal: Time,
    noise: Time,
    vocab_size: int,
    tau: float | int,
    generator: Generator = None,
    top: int = DEFAULT_TOP,
) -> RelaxedState:
    """softmax(w / tau) over the top + 1 largest entries of w = a~ onehot(x_0) + s~ eps, and x_t = argmax w.

    `signal` and `noise` are numbers, or one per sequence or per position. The clean token gets no better treatment than
    its value earns: what is returned is a function of w, and tells the network nothing of x_0 that w does not. It is
    all of w for top >= V - 1. Otherwise the weight cut off is at most (V - 1 - top) times the ratio of the last weight
    kept to the first, and `sufficient_top` says which `top` is enough. x_t is exact for all. Memory grows with `top`
    and work with its square, little beside V at the small tau that this is made for.
    """
    check_integer("vocab_size", vocab_size, 2)
    check_ids("x_0", x_0, vocab_size)
    check_positive("tau", tau)
    check_integer("top", top, 1)
    signal = per_position("signal", signal, x_0)[..., None]
    noise = per_position("noise", noise, x_0)[..., None]
    k = min(top + 1, vocab_size - 1)  # all that can be among the top + 1 largest if the clean token is not
    u = uniform((*x_0.shape, 2 * k + 1), generator, x_0.device)
    # w_{x_0} = a~ + s~ eps, and the k largest of the other w = s~ eps
    clean = signal + noise * torch.special.ndtri(u[..., :1])
    others = noise * largest_gaussians(u[..., 1 : k + 1], vocab_size - 1)
    tokens = distinct_tokens(x_0.long(), u[..., k + 1 :], vocab_size)
    w, place = torch.topk(torch.cat([clean, others], dim=-1), min(top + 1, vocab_size))
    ids = tokens.gather(-1, place)
    return RelaxedState(Mixture(torch.softmax(w / tau, dim=-1), ids), ids[..., 0])


def largest_gaussians(u: Float64[Tensor, "*rows k"], n: int) -> Float64[Tensor, "*rows k"]:
    """z_1 > ... > z_k, the largest of n Gaussians: log Phi(z_j) = log u_1 / n + ... + log u_j / (n - j + 1).

    The largest of n uniforms is u^(1/n), and the others are uniform below it.
    """
    left = n - torch.arange(u.shape[-1], dtype=u.dtype, device=u.device)
    log_below = torch.cumsum(torch.log(u) / left, dim=-1)
    below = torch.exp(log_below)
    above = -torch.expm1(log_below)
    z = torch.special.ndtri(torch.minimum(below, above))  # from the smaller tail, which keeps its digits
    return torch.where(below < above, z, -z)


def distinct_tokens(
    x_0: Int64[Tensor, "*rows"], u: Float64[Tensor, "*rows k"], vocab_size: int
) -> Int64[Tensor, "*rows k+1"]:
    """x_0 followed by k of the V - 1 other tokens, every sequence of distinct ones equally probable.

    The j-th is drawn as a rank among the tokens that the earlier ones left over. From the back, every rank at or above
    an earlier one moves up by one to make room for it; what comes out are ranks among all tokens.
    """
    ranks = [pick(u[..., j], vocab_size - 1 - j) for j in range(u.shape[-1])]
    ids = torch.stack([x_0, *ranks], dim=-1)
    for j in reversed(range(len(ranks))):
        later = ids[..., j + 1 :]
        later += later >= ids[..., j : j + 1]
    return ids


def sufficient_top(
    vocab_size: int,
    tau: float | int,
    noise: float | int,
    lost: float | int = 1e-6,
    fraction: float | int = 1e-4,
) -> int:
    """The least k with k! Gamma(r + 1) / ((r - 1) Gamma(k + r)) <= lost * fraction / 2, where r = s~ / (tau h).

    With this `top` the weight cut off exceeds `lost` at no more than this `fraction` of positions, whatever the signal;
    `noise` is the least s~ in use, that at gamma_min. Of the n = V - 1 Gaussians the numbers -log(1 - Phi(z)) are
    exponentials, and the first and the j-th largest of those differ by the largest of j - 1 exponentials, D_j (Renyi).
    Let 1 - Phi(z) = fraction / (2 n) and h = phi(z) / (1 - Phi(z)). Unless z_1 exceeds z, which uses up half the
    fraction, z_1 - z_j >= D_j / h, so that the sum over j > k of exp(-s~ (z_1 - z_j) / tau), which bounds the weight
    beyond the k + 1 largest entries, has at most the mean on the left. Markov's inequality uses up the other half.
    """
    check_integer("vocab_size", vocab_size, 2)
    check_positive("tau", tau)
    check_positive("noise", noise)
    for name, share in (("lost", lost), ("fraction", fraction)):
        require(0 < share < 1, f"{name} must lie strictly between 0 and 1; got {share!r}")
    n = vocab_size - 1
    tail = fraction / (2 * n)
    z = float(torch.special.ndtri(torch.tensor(tail, dtype=torch.float64)))
    hazard = math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) / tail
    r = noise / (tau * hazard)
    if r <= 1:  # the sum does not converge: every token counts
        return n
    allowed = math.log(lost) + math.log(fraction / 2)
    # k = 1: the bound is Gamma(r + 1) / ((r - 1) Gamma(r + 1)); every further k multiplies it by k / (k - 1 + r).
    k = 1
    log_mean = -math.log(r - 1)
    while log_mean > allowed and k < n:
        k += 1
        log_mean += math.log(k / (k - 1 + r))
    return k
