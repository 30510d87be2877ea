"""What a judge is asked and what it answers: scores of texts and, if it is a network, their features."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from multimdm.evaluation.bootstrap import Bootstrap, Estimate, perplexity
from multimdm.evaluation.progress import Progress, ignore


@dataclass(frozen=True)
class Scores:
    """Per sample, the negative log-likelihood of the tokens that count, in nats, and how many count."""

    nll: Float64[Tensor, " num"]
    tokens: Int64[Tensor, " num"]

    def gen_ppl(self, bootstrap: Bootstrap) -> Estimate | None:
        """exp(all nats / all tokens); None if no token counts, as when all samples are empty."""
        if not bool(self.tokens.any()):
            return None
        return bootstrap.ratio(self.nll, self.tokens, perplexity)


@runtime_checkable
class Judge(Protocol):
    """Made for one model, whose ids it can read.

    It is given ids rather than texts: texts have no end-of-text tokens any more, and the rule on those counts them.
    """

    name: str
    """What figures are labelled with."""
    fingerprint: str
    """Equal fingerprints give equal scores."""

    def score(
        self, ids: Int64[Tensor, "num L"], valid: Bool[Tensor, "num L"] | None = None, progress: Progress = ignore
    ) -> Scores:
        """Judge sequences of the model; padding (not `valid`) is no part of them."""
        ...


@runtime_checkable
class Reader(Judge, Protocol):
    """A judge that is a network: it has a vector for each text, and equal fingerprints give equal vectors."""

    def features(
        self, ids: Int64[Tensor, "num L"], valid: Bool[Tensor, "num L"] | None = None
    ) -> Float[Tensor, "num d"]:
        """The network's last layer at the last position of each text; padding (not `valid`) is no part of it."""
        ...
