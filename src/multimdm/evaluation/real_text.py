"""Held-out real sequences, with which generated ones are compared."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from multimdm.data.prepared import Example, PreparedData
from multimdm.data.tales import Tales
from multimdm.evaluation.bootstrap import Bootstrap, Estimate
from multimdm.evaluation.judges import Judge
from multimdm.evaluation.progress import Progress, ignore
from multimdm.evaluation.sample_statistics import token_counts, unigram_entropy
from multimdm.evaluation.tales_models import fingerprint_of_tales, tales_for
from multimdm.pipeline import Model
from multimdm.pipeline.generation import length_of, tokenizer_of
from multimdm.process import Streams

_TALES_SEED = 0x7A1E5
"""Stories are drawn anew without end, so these were seen in training only by chance."""


@runtime_checkable
class RealText(Protocol):
    """Sequences in the tokens of a model."""

    name: str
    """What it is called in results."""
    fingerprint: str
    """Equal fingerprints mean equal sequences."""
    nats_per_token: float | None = None
    """The exact entropy of the source, where it is known: the least NELBO there can be."""

    def take(self, num: int) -> Example:
        """So many sequences, or all if there are fewer."""
        ...


class TalesText(RealText):
    """Stories that are drawn for this purpose."""

    name = "tales"

    def __init__(self, tales: Tales) -> None:
        self._tales = tales
        self.nats_per_token = tales.entropy_per_token
        self.fingerprint = fingerprint_of_tales(tales)

    def take(self, num: int) -> Example:
        """The first stories of a stream that has no end."""
        ids = self._tales.sample(num, Streams.spawn(_TALES_SEED, num))
        return Example(ids, torch.ones_like(ids, dtype=torch.bool))

    def log_prob(self, ids: Int64[Tensor, "B L"]) -> Float64[Tensor, " B"]:
        """log p of stories under the source itself, in nats."""
        return self._tales.log_prob(ids, epsilon=0)


class PreparedText(RealText):
    """Sequences of a prepared directory; its split valid, if it has one."""

    def __init__(self, data: PreparedData, length: int) -> None:
        self.name, self._data, self._length = str(data.directory), data, length
        self.fingerprint = f"{data.fingerprint}, length {length}"

    def take(self, num: int) -> Example:
        """Evenly spread over the file: neighbours are often of one document."""
        size = len(self._data)
        num = min(num, size)
        example = self._data[((torch.arange(num) * size) // num).numpy()]
        return example.cut(self._length)


def real_text(data: str | Path, model: Model, length: int | None = None) -> RealText:
    """`tales`, or a directory that `multimdm prepare` wrote.

    Sequences are cut to `length`, that of the samples they are compared with; without it they are whole.
    """
    if str(data) == "tales":
        return TalesText(tales_for(model, length))
    directory = Path(data)
    if (directory / "valid").is_dir():
        directory = directory / "valid"
    opened = PreparedData.open(directory)
    opened.check_tokenizer(tokenizer_of(model, f"the data {directory}"))
    if len(opened) == 0:
        raise ValueError(f"{directory} has no sequences")
    if length is None:
        return PreparedText(opened, length_of(model, opened.manifest.length))
    if opened.manifest.length < length:
        raise ValueError(
            f"{directory} has sequences of {opened.manifest.length} tokens, the samples {length}: entropies can be "
            f"compared at one length only; give --length {opened.manifest.length}"
        )
    return PreparedText(opened, length)


@dataclass(frozen=True)
class RealFigures:
    """The figures of samples, for real text."""

    name: str
    sequences: int
    """How many sequences the entropy is the mean over."""
    entropy: Estimate
    """The entropy, defined as for samples."""
    pooled_entropy: Estimate
    """The unigram entropy of all sequences together."""
    judge: str | None
    judged: int
    """Sequences that the judge was shown."""
    gen_ppl: Estimate | None
    """What the judge says of real text."""


def describe_real(
    text: RealText, judge: Judge | None, entropy_of: int = 2048, judged: int = 256, progress: Progress = ignore
) -> RealFigures:
    """Entropy and the judge's own score, the latter on fewer sequences since judges take time."""
    example = text.take(entropy_of)
    bootstrap = Bootstrap(len(example.ids))
    entropy = bootstrap.mean(unigram_entropy(example.ids, example.valid))
    pooled = bootstrap.pooled_entropy(token_counts(example.ids, example.valid))
    shown = text.take(judged)
    n = len(shown.ids)
    scores = None if judge is None else judge.score(shown.ids, shown.valid, progress)
    return RealFigures(
        name=text.name,
        sequences=len(example.ids),
        entropy=entropy,
        pooled_entropy=pooled,
        judge=None if judge is None else judge.name,
        judged=0 if judge is None else n,
        gen_ppl=None if scores is None else scores.gen_ppl(Bootstrap(n)),
    )
