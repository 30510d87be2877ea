"""How far samples are from Tales, beside how far as many real stories are by chance.

The distances are those of tokens, of pairs of neighbours, and of what stories are about (name, place, thing and event,
one by one and two by two), whose law is known exactly. The last show a model whose words are right but whose stories
are always the same.
"""

from functools import lru_cache
from itertools import combinations
from statistics import fmean
from typing import NamedTuple

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from multimdm.data.tales import Tales
from multimdm.evaluation.bootstrap import Estimate
from multimdm.evaluation.total_variation import (
    distance,
    expected_distance,
    frequencies,
    pair_events,
    token_events,
    total_variation,
)
from multimdm.process import Streams

_STORIES = 20_000
"""Stories in the set that stands for the source."""
_SETS = 16
"""Sets of real stories; the chance level is the mean of their distances."""
_SEED = 0x1A4D5
"""The seed of the source; the seeds of the sets follow it. No other stories are drawn with them."""


SUBJECTS = {"name": "hero", "place": "place", "thing": "object", "event": "event"}
"""What stories are about -> the variable of the grammar."""


class Frequencies(NamedTuple):
    """Shares of tokens at each position, of pairs of neighbours anywhere, and of what stories are about."""

    tokens: Float64[Tensor, " LV"]
    pairs: Float64[Tensor, " VV"]
    subjects: Float64[Tensor, " readings"]
    subject_pairs: Float64[Tensor, " pairs_of_readings"]


class Chance(NamedTuple):
    """What real stories have on average."""

    tokens: float
    pairs: float
    subjects: float
    subject_pairs: float


class TalesDistances(NamedTuple):
    """The distances of samples from the source, each beside what as many real stories have; None for other data."""

    tokens: Estimate | None = None
    token_chance: float | None = None
    pairs: Estimate | None = None
    pair_chance: float | None = None
    subjects: Estimate | None = None
    subject_chance: float | None = None
    subject_pairs: Estimate | None = None
    subject_pair_chance: float | None = None


def tales_distances(tales: Tales, ids: Int64[Tensor, "num L"], subjects: bool = True) -> TalesDistances:
    """Total variation between the samples and the source: of tokens position by position, of pairs, of subjects.

    Reading what stories are about takes as long as judging them: `subjects=False` leaves it out.
    """
    law, chance = source_frequencies(tales), chance_level(tales, len(ids))
    tokens, pairs = (distance(*both) for both in zip(_token_events(tales, ids), law[:2], strict=True))
    found = TalesDistances(tokens, chance.tokens, pairs, chance.pairs)
    if not subjects:
        return found
    single, double = (distance(*both) for both in zip(_subject_events(tales, ids), law[2:], strict=True))
    return found._replace(
        subjects=single,
        subject_chance=chance.subjects,
        subject_pairs=double,
        subject_pair_chance=chance.subject_pairs,
    )


@lru_cache(maxsize=4)
def source_frequencies(tales: Tales) -> Frequencies:
    """The laws of tokens and pairs, from many stories that are always the same; the laws of subjects, exactly."""
    ids, V = tales.sample(_STORIES, Streams.spawn(_SEED, _STORIES)), tales.vocab_size
    tokens = frequencies(token_events(ids, V), tales.length * V)
    pairs = frequencies(pair_events(ids, V), V * V)
    subjects, subject_pairs = (_subject_laws(tales, together) for together in (1, 2))
    return Frequencies(
        tokens, pairs, torch.cat(subjects) / len(subjects), torch.cat(subject_pairs) / len(subject_pairs)
    )


@lru_cache(maxsize=16)
def chance_level(tales: Tales, num: int) -> Chance:
    """E[distance of `num` real stories]: what a perfect model has. Of tokens and pairs, the mean over a few sets.

    Of tokens and pairs it contains what the set that stands for the source is off by itself, as the distances of
    samples do; of subjects it is exact, as their law is.
    """
    source = source_frequencies(tales)
    sets = [tales.sample(num, Streams.spawn(_SEED + 1 + number, num)) for number in range(_SETS)]
    tokens, pairs = (
        fmean(total_variation(frequencies(events, len(law)), law) for events in parts)
        for law, parts in zip(source[:2], zip(*(_token_events(tales, ids) for ids in sets), strict=True), strict=True)
    )
    subjects, subject_pairs = (
        fmean(expected_distance(law, num) for law in _subject_laws(tales, together)) for together in (1, 2)
    )
    return Chance(tokens, pairs, subjects, subject_pairs)


def _token_events(tales: Tales, ids: Int64[Tensor, "num L"]) -> list[Int64[Tensor, "num events"]]:
    """Tokens at their positions, and pairs of neighbours."""
    return [token_events(ids, tales.vocab_size), pair_events(ids, tales.vocab_size)]


def _subject_events(tales: Tales, ids: Int64[Tensor, "num L"]) -> list[Int64[Tensor, "num events"]]:
    """What stories are about, variable by variable and two by two: an event says which values a combination has.

    Every combination has an equal share, so the distance is the mean of the distances of all combinations.
    """
    readings = {name: tales.variables.read(name, ids) for name in SUBJECTS.values()}
    found = []
    for together in (1, 2):
        events, first = [], 0
        for names in combinations(readings, together):
            place = torch.zeros(len(ids), dtype=torch.long)
            for name in names:
                place = place * tales.variables.size(name) + readings[name]
            events.append(first + place)
            first += len(tales.variables.law(*names))
        found.append(torch.stack(events, 1))
    return found


def _subject_laws(tales: Tales, together: int) -> list[Float64[Tensor, " readings"]]:
    """The exact laws of so many variables at a time, in the order of the events."""
    return [tales.variables.law(*names) for names in combinations(SUBJECTS.values(), together)]
