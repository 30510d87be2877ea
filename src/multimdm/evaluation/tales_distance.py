"""How far samples are from Tales, beside how far as many real stories are by chance."""

from functools import lru_cache
from statistics import fmean
from typing import NamedTuple

from jaxtyping import Float64, Int64
from torch import Tensor

from multimdm.data.tales import Tales
from multimdm.evaluation.bootstrap import Estimate
from multimdm.evaluation.total_variation import distance, frequencies, pair_events, token_events, total_variation
from multimdm.process import Streams

_STORIES = 20_000
"""Of the set that stands for the source."""
_SETS = 16
"""Of real stories, of which the chance level is the mean."""
_SEED = 0x1A4D5
"""Of the source; those of the sets follow. No other stories are drawn with them."""


class Laws(NamedTuple):
    """Shares of tokens at each position, and of pairs of neighbours anywhere."""

    tokens: Float64[Tensor, " LV"]
    pairs: Float64[Tensor, " VV"]


class Chance(NamedTuple):
    """What real stories have on average."""

    tokens: float
    pairs: float


class TalesDistances(NamedTuple):
    """Of samples from the source, each beside what as many real stories have; nothing for other data."""

    tokens: Estimate | None = None
    token_chance: float | None = None
    pairs: Estimate | None = None
    pair_chance: float | None = None


def tales_distances(tales: Tales, ids: Int64[Tensor, "num L"]) -> TalesDistances:
    """Total variation between the samples and the source: of tokens position by position, and of pairs."""
    law, chance, V = source_laws(tales), chance_level(tales, len(ids)), tales.vocab_size
    tokens, pairs = distance(token_events(ids, V), law.tokens), distance(pair_events(ids, V), law.pairs)
    return TalesDistances(tokens, chance.tokens, pairs, chance.pairs)


@lru_cache(maxsize=4)
def source_laws(tales: Tales) -> Laws:
    """In many stories, which are always the same."""
    return _laws(tales, _STORIES, _SEED)


@lru_cache(maxsize=16)
def chance_level(tales: Tales, num: int) -> Chance:
    """E[distance of `num` real stories], by the mean over a few sets: what a perfect model has.

    It contains what the set that stands for the source is off by itself, as the distances of samples do.
    """
    source = source_laws(tales)
    sets = [_laws(tales, num, _SEED + 1 + number) for number in range(_SETS)]
    tokens, pairs = (fmean(total_variation(one[kind], source[kind]) for one in sets) for kind in range(2))
    return Chance(tokens, pairs)


def _laws(tales: Tales, num: int, seed: int) -> Laws:
    ids, V = tales.sample(num, Streams.spawn(seed, num)), tales.vocab_size
    return Laws(frequencies(token_events(ids, V), tales.length * V), frequencies(pair_events(ids, V), V * V))
