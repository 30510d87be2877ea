"""How probable held-out text is under a model that writes in one step: low where a model has forgotten what there is.

One step draws x_1 from the prior and then every token by itself, so that

    p(x_0) = E over x_1 of prod_l f_1(x_0^l | x_1),

a mixture over noise strings. The mean over S strings estimates it without bias; its logarithm is too low on average, by
Jensen's inequality, and the less so the larger S is. Perplexity of samples rewards who writes little but well; this
punishes it.
"""

import math

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from multimdm.evaluation.bootstrap import Bootstrap, Estimate
from multimdm.evaluation.progress import Progress, ignore
from multimdm.pipeline import Model
from multimdm.process import MultiMask, Process, Streams
from multimdm.process.anchored import shown_with_end
from multimdm.process.checks import require

_STRINGS = 32
"""Noise strings that the network runs on at once."""


@torch.no_grad()
def one_step_log_probs(
    model: Model,
    texts: Int64[Tensor, "n L"],
    strings: int,
    seed: int = 0,
    temperature: float | int = 1.0,
    progress: Progress = ignore,
) -> Float64[Tensor, " n"]:
    """log of the mean over `strings` draws of x_1 of p(text | x_1), in nats per text."""
    process = model.process
    if not isinstance(process, Process):
        raise ValueError(f"recall in one step is for models of a discrete process; this one has {process!r}")
    require(temperature > 0, f"temperature must be positive: at 0 texts have no probability; got {temperature}")
    total = torch.full((len(texts),), -math.inf, dtype=torch.float64)
    for start in range(0, strings, _STRINGS):
        num = min(_STRINGS, strings - start)
        noise = process.prior((num, texts.shape[1]), Streams.spawn(seed, num, start))
        total = torch.logaddexp(total, log_probs_given_noise(model, texts, noise, temperature).logsumexp(1))
        progress(num)
    return total - math.log(strings)


@torch.no_grad()
def log_probs_given_noise(
    model: Model, texts: Int64[Tensor, "n L"], noise: Int64[Tensor, "S L"], temperature: float | int = 1.0
) -> Float64[Tensor, "n S"]:
    """sum_l log f_1(x_0^l | x_1) of every text under every noise string."""
    device, process = next(model.network.parameters()).device, model.process
    columns, index = [], texts.T.to(device)
    for strings in noise.to(device).split(_STRINGS):
        shown = shown_with_end(process, strings, strings) if isinstance(process, MultiMask) else strings
        logits = model.network(shown, torch.ones(len(strings), dtype=torch.float64, device=device))
        log_probs = (logits.double() / temperature).log_softmax(-1)  # [strings, L, V]
        column = torch.zeros((len(strings), len(texts)), dtype=torch.float64, device=device)
        for place, row in enumerate(index):
            column += log_probs[:, place, row]
        columns.append(column.T.cpu())
    return torch.cat(columns, dim=1)


def one_step_recall(log_probs: Float64[Tensor, " n"], length: int) -> Estimate:
    """-log p in nats per token, with an interval over texts."""
    return Bootstrap(len(log_probs)).mean(-log_probs / length)
