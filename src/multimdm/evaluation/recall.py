"""How probable held-out text is under a model that writes in one step: improbable where a model has forgotten it.

One step draws x_1 from the prior and then every token by itself, so that

    p(x_0) = E over x_1 of prod_l f_1(x_0^l | x_1),

a mixture over noise strings. The mean over S strings estimates it without bias; its logarithm is too low on average, by
Jensen's inequality, and the less so the larger S is. Perplexity of samples rewards who writes little but well; this
punishes it. It is not for quantile noise, of which hardly any string leads to a given text: `one_step.py` is.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from multimdm._checks import check_integer, require
from multimdm.evaluation.bootstrap import Bootstrap, Estimate
from multimdm.evaluation.progress import Progress, ignore
from multimdm.evaluation.real_text import RealText
from multimdm.pipeline import Model
from multimdm.pipeline.ranks import shared
from multimdm.process import Process, Streams
from multimdm.process.places import chunk_rows, exact, home_of

_STRINGS = 32
"""Noise strings that the network runs on at once, at most."""
_LOGITS = 2**23
"""That are held at once in float64 on a CPU."""


@dataclass(frozen=True)
class Recall:
    """-log p(x_0) in nats per token of text."""

    temperature: float
    nats: Estimate
    """Nats per token, with an interval over texts."""
    sequences: int
    strings: int
    """S: figures of the same S can be compared."""
    proposed: bool = False
    """Whether every text has strings of its own, which a teacher proposed (`quantile_models.py`)."""


def has_recall(model: Model) -> bool:
    """Whether the probability can be computed: the process must be discrete."""
    return isinstance(model.process, Process)


def one_step_recall(
    model: Model,
    text: RealText,
    sequences: int = 512,
    strings: int = 2048,
    temperature: float | int = 1.0,
    seed: int = 0,
    progress: Progress = ignore,
) -> Recall:
    """The recall of held-out text. What stands in the place of padding may be anything."""
    check_integer("sequences", sequences, 1)
    example = text.take(sequences)
    require(example.given is None, "recall is of whole texts; these data are prompts and answers: leave it out")
    log_probs = one_step_log_probs(model, example.ids, example.valid, strings, temperature, seed, progress)
    nats = Bootstrap(len(example.ids)).ratio(-log_probs, example.valid.sum(1))
    return Recall(float(temperature), nats, len(example.ids), strings)


def one_step_log_probs(
    model: Model,
    texts: Int64[Tensor, "n L"],
    valid: Bool[Tensor, "n L"] | None,
    strings: int,
    temperature: float | int = 1.0,
    seed: int = 0,
    progress: Progress = ignore,
) -> Float64[Tensor, " n"]:
    """log of the mean over `strings` draws of x_1 of p(text | x_1), in nats per text."""
    process = _discrete(model)
    check_integer("strings", strings, 1)
    if process.num_masks == 1:
        strings = 1  # there is only one

    def of(start: int) -> Float64[Tensor, " n"]:
        num = min(_STRINGS, strings - start)
        noise = process.prior((num, texts.shape[1]), Streams.spawn(seed, num, start))
        found = log_probs_given_noise(model, texts, valid, noise, temperature).logsumexp(1)
        progress(num)
        return found

    total = torch.full((len(texts),), -math.inf, dtype=torch.float64)
    for found in shared(range(0, strings, _STRINGS), of):
        total = torch.logaddexp(total, found)
    return total - math.log(strings)


def _discrete(model: Model) -> Process:
    """The process of the model, if it has recall."""
    if not isinstance(model.process, Process):
        raise ValueError(f"recall in one step is for models of a discrete process; this one has {model.process!r}")
    return model.process


@torch.no_grad()
def log_probs_given_noise(
    model: Model,
    texts: Int64[Tensor, "n L"],
    valid: Bool[Tensor, "n L"] | None,
    noise: Int64[Tensor, "S L"],
    temperature: float | int = 1.0,
) -> Float64[Tensor, "n S"]:
    """sum_l log f_1(x_0^l | x_1) of every text under every noise string, over the valid positions."""
    require(temperature > 0, f"temperature must be positive: at 0 texts have no probability; got {temperature}")
    network, process = model.network, _discrete(model)
    weight = next(network.parameters())
    device, L, columns = home_of(weight.device), texts.shape[1], []
    ids = texts.T.to(device)
    counted = torch.ones_like(ids, dtype=torch.bool) if valid is None else valid.T.to(device)
    together = min(_STRINGS, chunk_rows(L * network.config.vocab_size, weight, _LOGITS))
    for x_1 in noise.to(device).split(together):
        logits = network(process.path_to(x_1).shown(x_1), torch.ones(len(x_1), dtype=torch.float64, device=device))
        log_probs = (exact(logits) / temperature).log_softmax(-1)  # [strings, L, V]
        # log f_1(x_0^l | x_1) of all texts: [strings, L, n]
        of_texts = log_probs.gather(2, ids.expand(len(x_1), *ids.shape))
        columns.append(of_texts.where(counted, 0.0).sum(1).T.cpu())
    return torch.cat(columns, dim=1)
