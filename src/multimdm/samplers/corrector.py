"""The corrector: visible tokens return to masks and are predicted anew, with every marginal kept (the ReMDM manner).

Given the clean token x_0, a visible position at t is masked at s with probability sigma, at a mask of r_s^{x_0}. For
p_s(. | x_0) = alpha_s 1{x_0} + (1 - alpha_s) r_s to come out of p_t(. | x_0), a masked position must become visible
with a probability q such that

    alpha_t (1 - sigma) + (1 - alpha_t) q = alpha_s,    q = (alpha_s - (1 - sigma) alpha_t) / (1 - alpha_t).

What stays masked moves by the bridge of the masks, which carries r_t to r_s; so the masked mass at s is
alpha_t sigma r_s + (1 - alpha_t) (1 - q) r_s = (1 - alpha_s) r_s, for any number of masks. q is at most 1 if and only
if sigma <= (1 - alpha_s) / alpha_t, which is the bound for one mask too; it vanishes at s = 0.

Shapes: clean tokens, x_t, x_s and the numbers u are all [*shape].
"""

import torch
from jaxtyping import Int64
from torch import Tensor

from multimdm._checks import require
from multimdm.process import Generator, MultiMask, Process
from multimdm.process.base import Ids
from multimdm.process.draws import pick, uniform
from multimdm.samplers.process_checks import masked_process


def most_remasked(process: Process, s: float | int, t: float | int) -> float:
    """min(1, (1 - alpha_s) / alpha_t): the largest sigma that keeps the marginals between t and s."""
    alpha_t = float(process.schedule(_exact(t)).alpha)
    hidden_s = float(process.schedule(_exact(s)).one_minus_alpha)
    return min(1.0, hidden_s / alpha_t) if alpha_t > 0 else 1.0


def remask_sample(
    process: Process,
    clean: Ids,
    x_t: Ids,
    s: float | int,
    t: float | int,
    sigma: float | int,
    generator: Generator = None,
) -> Int64[Tensor, "*shape"]:
    """x_s given x_t and hypotheses of the clean tokens, where a visible token is masked with probability sigma.

    One number per position. sigma = 0 is `MultiMask.reverse_sample` in law.
    """
    process = masked_process(process, "the corrector")
    bound = most_remasked(process, s, t)
    require(
        0 <= sigma <= bound,
        f"sigma must be from 0 to {bound:.6g} to keep the marginals between s = {s} and t = {t}; got {sigma}",
    )
    at_s = process.schedule(_exact(s))
    at_t = process.schedule(_exact(t))
    u = uniform(x_t.shape, generator, x_t.device)
    # 1 - q = (1 - alpha_s - sigma alpha_t) / (1 - alpha_t); at the bound rounding could make it negative.
    stays = ((at_s.one_minus_alpha - sigma * at_t.alpha).clamp_min(0.0) / at_t.one_minus_alpha).to(u.device)
    mask = process.remain(clean, x_t, s, t, _within(u, stays))
    predicted = torch.where(u < stays, mask, clean.long())
    # a visible token becomes a mask of r_s^{x_0} with probability sigma
    again = _own_mask(process, x_t, _within(u, sigma), float(at_s.one_minus_beta))
    kept = torch.where(u < sigma, again, x_t.long())
    return torch.where(process.active(x_t), predicted, kept)


def _own_mask(process: MultiMask, x: Tensor, u: Tensor, one_minus_beta: float) -> Tensor:
    """A draw of r_s^x: any mask with probability 1 - beta_s, else the designated one."""
    anywhere = process.vocab_size + pick(_within(u, one_minus_beta), process.num_masks)
    return torch.where(u < one_minus_beta, anywhere, process.designated_mask(x))


def _within(u: Tensor, share: float | Tensor) -> Tensor:
    """u / share: uniform again, given that u fell below the share; 1 elsewhere, where it is not used."""
    return (u / share).nan_to_num(1.0).clamp(0.0, 1.0)


def _exact(t: float | int) -> Tensor:
    return torch.tensor(float(t), dtype=torch.float64)
