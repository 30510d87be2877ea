"""One measurement: samples of a model at K steps and temperature tau, judged and described, with intervals."""

from dataclasses import dataclass

from jaxtyping import Int64
from torch import Tensor

from multimdm.data.tales import Tales
from multimdm.evaluation.bootstrap import Bootstrap, Estimate
from multimdm.evaluation.judges import Judge
from multimdm.evaluation.progress import Progress, ignore
from multimdm.evaluation.sample_statistics import distinct, repeated, text_positions, token_counts, unigram_entropy
from multimdm.evaluation.settings import Drawing
from multimdm.evaluation.tales_distance import TalesDistances, tales_distances
from multimdm.evaluation.tales_models import speaks_tales, tales_for
from multimdm.pipeline import Model, Samples

_TEXTS = 4
"""Samples that are kept to be read."""


@dataclass(frozen=True)
class Measurement:
    """Figures of a set of samples, with intervals over samples (`Bootstrap`)."""

    steps: int
    """K, as asked for."""
    nfe: int
    """Network calls that a sample took."""
    temperature: float | int
    num: int
    length: int
    seed: int
    judge: str | None
    gen_ppl: Estimate | None
    """None without a judge, and if the judge finds nothing to judge."""
    entropy: Estimate
    """Unigram entropy of a sample in nats, averaged: variety within samples."""
    pooled_entropy: Estimate
    """Unigram entropy of all samples together: low where samples resemble each other, which the other does not see."""
    distinct: tuple[Estimate, Estimate, Estimate]
    """Shares of different 1-, 2- and 3-grams within a sample, averaged."""
    duplicates: Estimate
    """Share of samples that equal another one. Duplicates are not independent, so this interval is somewhat too
    narrow."""
    valid_sentences: Estimate | None
    """On Tales, the share of sentences that are well formed by themselves."""
    valid_stories: Estimate | None
    """On Tales, the share of samples that the source can make."""
    token_distance: Estimate | None
    """On Tales, the total variation between tokens of samples and of the source, averaged over positions."""
    token_chance: float | None
    """What as many real stories have of it, by chance alone: as much as a perfect model."""
    pair_distance: Estimate | None
    """On Tales, the total variation between pairs of neighbouring tokens, of all positions together."""
    pair_chance: float | None
    """What as many real stories have of it."""
    texts: tuple[str, ...]
    """The first few samples."""
    subject_distance: Estimate | None = None
    """On Tales, the total variation between what samples and stories of the source are about, whose law is exact: mean
    over name, place, thing and event. None without a judge, and of measurements that are older."""
    subject_chance: float | None = None
    """What as many real stories have of it."""
    subject_pair_distance: Estimate | None = None
    """The same of two of them at a time."""
    subject_pair_chance: float | None = None
    """What as many real stories have of it."""


def measure(
    model: Model,
    judge: Judge | None,
    steps: int,
    temperature: float | int = 1.0,
    drawing: Drawing | None = None,
    progress: Progress = ignore,
) -> Measurement:
    """Draw samples and judge them."""
    drawing = Drawing() if drawing is None else drawing
    samples = draw(model, steps, temperature, drawing, progress)
    return describe(model, judge, samples, steps, temperature, drawing, progress)


def draw(
    model: Model,
    steps: int,
    temperature: float | int,
    drawing: Drawing,
    progress: Progress = ignore,
    trace: bool = False,
) -> Samples:
    """Samples; the same random numbers for every K and tau."""
    drawing.check()
    sampling = drawing.sampling(steps, temperature)

    def watch(done: int, in_all: int, states: Tensor) -> None:
        progress(len(states))

    return model.sample(
        num=drawing.num,
        length=drawing.length,
        seed=drawing.seed,
        batch_size=drawing.batch_size,
        trace=trace,
        watch=watch,
        sampling=sampling,
    )


def describe(
    model: Model,
    judge: Judge | None,
    samples: Samples,
    steps: int,
    temperature: float | int,
    drawing: Drawing,
    progress: Progress = ignore,
) -> Measurement:
    """All figures of samples that were drawn at these settings."""
    ids = samples.ids.cpu()
    there = text_positions(model, ids)
    num, length = ids.shape
    bootstrap = Bootstrap(num)
    tales = tales_for(model, length) if speaks_tales(model) else None
    sentences, stories = (None, None) if tales is None else _validity(tales, ids, bootstrap)
    far = TalesDistances() if tales is None else tales_distances(tales, ids, subjects=judge is not None)
    one, two, three = (bootstrap.mean(distinct(ids, n, there)) for n in (1, 2, 3))
    return Measurement(
        steps=steps,
        nfe=samples.nfe,
        temperature=temperature,
        num=num,
        length=length,
        seed=drawing.seed,
        judge=judge.name if judge is not None else None,
        gen_ppl=judge.score(ids, there, progress).gen_ppl(bootstrap) if judge is not None else None,
        entropy=bootstrap.mean(unigram_entropy(ids, there)),
        pooled_entropy=bootstrap.pooled_entropy(token_counts(ids, there)),
        distinct=(one, two, three),
        duplicates=bootstrap.share(repeated(ids)),
        valid_sentences=sentences,
        valid_stories=stories,
        token_distance=far.tokens,
        token_chance=far.token_chance,
        pair_distance=far.pairs,
        pair_chance=far.pair_chance,
        texts=tuple(samples.texts[:_TEXTS]),
        subject_distance=far.subjects,
        subject_chance=far.subject_chance,
        subject_pair_distance=far.subject_pairs,
        subject_pair_chance=far.subject_pair_chance,
    )


def _validity(tales: Tales, ids: Int64[Tensor, "num L"], bootstrap: Bootstrap) -> tuple[Estimate | None, Estimate]:
    """Shares of valid sentences and stories."""
    counts = tales.valid_sentences(ids)
    sentences = bootstrap.share_of_parts(counts.valid, counts.total) if bool(counts.total.any()) else None
    # A story with a sentence that is not well formed is no story: only the others need be looked at as a whole.
    stories = counts.valid == counts.total
    if bool(stories.any()):
        stories[stories.clone()] = tales.valid(ids[stories])
    return sentences, bootstrap.share(stories)
