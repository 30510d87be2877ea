"""What samples look like, without a judge: where they have text, entropy, variety, repetition."""

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from multimdm._checks import check_integer
from multimdm.evaluation.tales_models import speaks_tales
from multimdm.pipeline import Model


def text_positions(model: Model, ids: Int64[Tensor, "num L"]) -> Bool[Tensor, "num L"]:
    """All but padding, which a model may have learnt to write, by the rule that real text is described with.

    If the end of text serves as padding, those of its run at the end of the sequence but the first are padding. Stories
    of Tales are of one length with their padding: it is a word like others, to the source and to its exact judge.
    """
    tokenizer = model.tokenizer
    everywhere = torch.ones_like(ids, dtype=torch.bool)
    if tokenizer is None or tokenizer.pad_id is None or speaks_tales(model):
        return everywhere
    padding = ids == tokenizer.pad_id
    if tokenizer.pad_id != tokenizer.eos_id:
        return ~padding
    to_the_end = padding.flip(1).long().cumprod(1).flip(1).bool()
    return ~torch.cat([~everywhere[:, :1], to_the_end[:, 1:] & to_the_end[:, :-1]], dim=1)


def unigram_entropy(ids: Int64[Tensor, "num L"], valid: Bool[Tensor, "num L"] | None = None) -> Float64[Tensor, " num"]:
    """-sum_v f_v log f_v in nats, with f_v the share of token v within one sequence: DUO's sample entropy.

    Averaged over samples it is the paper's. Padding (not `valid`) is left out.
    """
    weights = torch.ones_like(ids) if valid is None else valid.long()
    ordered = ids.sort(dim=1)
    changes = torch.nn.functional.pad(ordered.values.diff(dim=1) != 0, (1, 0), value=False)
    # Equal tokens are neighbours now; a run's number is its bin.
    counts = torch.zeros_like(ids).scatter_add_(1, changes.long().cumsum(1), weights.gather(1, ordered.indices))
    total = counts.sum(1, keepdim=True).clamp_min(1)
    return torch.special.entr(counts.double() / total).sum(1)


def token_counts(ids: Int64[Tensor, "num L"], valid: Bool[Tensor, "num L"] | None = None) -> Int64[Tensor, "num n"]:
    """How often each of the n tokens that occur at all is in each sequence; padding (not `valid`) is left out."""
    tokens, places = ids.unique(return_inverse=True)
    weights = torch.ones_like(ids) if valid is None else valid.long()
    return ids.new_zeros(len(ids), len(tokens)).scatter_add_(1, places, weights)


def distinct(
    ids: Int64[Tensor, "num L"], n: int, valid: Bool[Tensor, "num L"] | None = None
) -> Float64[Tensor, " num"]:
    """Different n-grams of a sample over all its n-grams, sample by sample (0 for samples shorter than n).

    Padding (not `valid`) is left out. Over all samples together, as Li et al. (2016) have it, the figure falls with the
    number of samples.
    """
    check_integer("n", n, 1)
    rows = ids.tolist() if valid is None else [row[kept].tolist() for row, kept in zip(ids, valid, strict=True)]
    grams = [[tuple(row[start : start + n]) for start in range(len(row) - n + 1)] for row in rows]
    return torch.tensor([len(set(found)) / max(1, len(found)) for found in grams], dtype=torch.float64)


def repeated(ids: Int64[Tensor, "num L"]) -> Bool[Tensor, " num"]:
    """Whether a sample equals another one of the set."""
    _, which, counts = ids.cpu().unique(dim=0, return_inverse=True, return_counts=True)
    return counts[which] > 1
