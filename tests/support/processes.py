"""The processes over which the laws are tested, and the wrong ones that the tests must reject."""

from dataclasses import replace

import torch

from multimdm.process import MultiMask, Process, Schedule, Uniform, random_balanced


def small_processes() -> dict[str, Process]:
    """M in {1, 2, 5, 50}, several rho, both kinds of alpha, other assignments, and uniform states."""
    return {
        "M=1": MultiMask(7, 1),
        "M=1 cosine": MultiMask(5, 1, Schedule(kind="cosine")),
        "M=2 rho=0.5": MultiMask(7, 2, Schedule(rho=0.5)),
        "M=2 rho=2.5": MultiMask(4, 2, Schedule(rho=2.5)),
        "M=5": MultiMask(7, 5),
        "M=5 rho=0.3 cosine": MultiMask(8, 5, Schedule(rho=0.3, kind="cosine"), random_balanced(8, 5, seed=1)),
        "M=V": MultiMask(3, 3, Schedule(rho=0.8)),
        "M=50 rho=0.7": MultiMask(60, 50, Schedule(rho=0.7), random_balanced(60, 50, seed=2)),
        "M=3 context": MultiMask(7, 3, Schedule(rho=0.8), readout="context"),
        "M=5 context cosine": MultiMask(
            8, 5, Schedule(rho=2.0, kind="cosine"), random_balanced(8, 5, seed=3), readout="context"
        ),
        "uniform": Uniform(7),
        "uniform V=2": Uniform(2),
        "uniform cosine": Uniform(5, Schedule(kind="cosine")),
    }


def multimask_processes() -> dict[str, MultiMask]:
    return {name: p for name, p in small_processes().items() if isinstance(p, MultiMask)}


def predicts_posterior(process: Process) -> bool:
    """Whether a network of this process predicts p(x_0^l | x_t), and not what the context tells alone."""
    return isinstance(process, MultiMask) and process.readout == "posterior"


def bayes(process: Process, context: torch.Tensor, x_t: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """p(x_0 | x_t) of a prediction from the context [*shape, V], by the column of the marginals that belongs to x_t."""
    joint = context * process.marginal(torch.arange(process.vocab_size), t).T[x_t]
    return joint / joint.sum(-1, keepdim=True)


class BetaForAlpha(Schedule):
    """A mutant: alpha and beta exchanged."""

    def __call__(self, t):
        v = super().__call__(t)
        return replace(
            v, alpha=v.beta, beta=v.alpha, one_minus_alpha=v.one_minus_beta, one_minus_beta=v.one_minus_alpha
        )

    def between(self, s, t):
        b, at_s, at_t = super().between(s, t), self(s), self(t)
        return replace(
            b,
            alpha=b.beta,
            beta=b.alpha,
            one_minus_alpha=b.one_minus_beta,
            one_minus_beta=b.one_minus_alpha,
            reveal=(at_s.alpha - at_t.alpha) / at_t.one_minus_alpha,
            still_hidden=at_s.one_minus_alpha / at_t.one_minus_alpha,
        )


def off_by_one(process: MultiMask) -> MultiMask:
    """A mutant: every token designated to the next mask."""
    shifted = (process.assignment + 1) % process.num_masks
    return MultiMask(process.vocab_size, process.num_masks, process.schedule, shifted)


def beta_for_alpha(process: MultiMask) -> MultiMask:
    """A mutant: alpha and beta exchanged."""
    schedule = BetaForAlpha(process.schedule.rho, process.schedule.kind)
    return MultiMask(process.vocab_size, process.num_masks, schedule, process.assignment)


def random_prediction(*shape: int, seed: int = 0) -> torch.Tensor:
    """Log-probabilities in float64, neither flat nor sharp."""
    generator = torch.Generator().manual_seed(seed)
    return torch.log_softmax(1.5 * torch.randn(*shape, generator=generator, dtype=torch.float64), -1)
