"""The judge that knows the source: Tales."""

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from multimdm.data.tales import Tales
from multimdm.evaluation.judges.base import Scores
from multimdm.evaluation.progress import Progress, ignore
from multimdm.evaluation.tales_models import fingerprint_of_tales
from multimdm.pipeline.ranks import shared

_TOGETHER = 256


class TalesJudge:
    """log p(sequence) under the source with replaced tokens, exactly. Every position counts, end and padding too."""

    name = "tales"

    def __init__(self, tales: Tales) -> None:
        self.tales = tales
        self.fingerprint = f"{fingerprint_of_tales(tales)}, epsilon {Tales.EPSILON}"

    def score(
        self, ids: Int64[Tensor, "num L"], valid: Bool[Tensor, "num L"] | None = None, progress: Progress = ignore
    ) -> Scores:
        """Padding is a token like others: `valid` changes nothing."""

        def of(part: Tensor) -> Tensor:
            nll = -self.tales.log_prob(part).cpu()
            progress(len(part))
            return nll

        return Scores(torch.cat(shared(ids.split(_TOGETHER), of)), torch.full((len(ids),), ids.shape[1]))
