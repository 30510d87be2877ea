"""The law of the next token of a story, given all before it: against lists of all stories, and by what it writes."""

# pyright: reportArgumentType=false

import itertools
import math
import re
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from multimdm.data.tales import Tales
from multimdm.data.tales_grammar import Choice, Grammar, Sentence, by, words
from multimdm.process.quantile import cells, numbers
from support.statistics import MUTANT, REJECT, chi_square_p

# Parents, choosers, agreement across sentences, phrases of several lengths that begin alike.
AGREEING = Grammar(
    {
        "gender": words("girl, boy"),
        "hero": by("gender", {"girl": "Mia, Zoe", "boy": "Tom, Zoe"}),
        "thing": words("kite, egg, drum"),
        "event": words("lost, found, kept"),
    },
    {
        "he": by("gender", {"girl": "she", "boy": "he"}),
        "a": by("thing", {"kite": "a, one, one big", "egg": "an, one", "drum": "a"}),
        "soon": words("soon, one day"),
        "sad": by("event", {"lost": "sad, so sad", "found": "glad, sad, so glad", "kept": "glad"}),
    },
    (
        Sentence({(): {"{soon} {hero} saw {a} {thing}": 2, "{hero} had {a} {thing}": 1, "{hero} sat": 1}}),
        Sentence(
            {
                ("lost", "found"): {"{he} {event} the {thing}": 3},
                ("found",): {"{hero} saw it": 1},
                ("kept",): {"{he} kept the {thing}": 1, "{he} kept it": 2},
            },
            given="event",
        ),
        Sentence({(): {"{he} was {sad}": 1, "{soon} {he} was {sad}": 1}}),
    ),
)

# Stories of several derivations: "he" and "he he" in a row, and weather that may first be asked for in any sentence,
# though its parent is named in none. Some values are impossible with some parents.
HIDDEN = Grammar(
    {
        "mood": words("good, bad"),
        "weather": by("mood", {"good": "sun, snow", "bad": "rain, snow"}),
        "color": by("weather", {"sun": "red, white", "snow": "white", "rain": "blue, red, white"}),
    },
    {"he": words("he, he he"), "wet": by("weather", {"sun": "dry", "snow": "wet, white", "rain": "wet, he"})},
    (
        Sentence({(): {"{he} {he}": 2, "{weather}": 1, "he saw {he}": 1}}),
        Sentence({("sun", "snow"): {"{wet} {he}": 1, "he {he} saw": 2}, ("rain",): {"{he} {wet}": 1}}, given="weather"),
        Sentence({(): {"{color} {he}": 1, "he he": 1, "{he}": 1}}),
    ),
)


def derivations(grammar: Grammar) -> Iterator[tuple[str, float]]:
    """Every way to make a story, by brute force: its text and its probability."""

    def row(choice: Choice, values: dict[str, int]) -> tuple[float, ...]:
        return choice.table[values[choice.given] if choice.given is not None else 0]

    def phrases(choice: Choice, values: dict[str, int]) -> list[tuple[str, float]]:
        return [(text, p) for text, p in zip(choice.phrases, row(choice, values), strict=True) if p > 0]

    def sentence_texts(sentence: Sentence, values: dict[str, int]) -> list[tuple[str, float]]:
        name = sentence.given
        value = grammar.variables[name].phrases[values[name]] if name is not None else None
        groups = [texts for group, texts in sentence.templates.items() if value is None or value in group]
        weights = {text: weight for texts in groups for text, weight in texts.items()}
        return [
            (" ".join(text for text, _ in picks), weight / sum(weights.values()) * math.prod(p for _, p in picks))
            for template, weight in weights.items()
            for picks in itertools.product(*(phrases(choice, values) for choice in grammar.symbols(template)))
        ]

    for picks in itertools.product(*(range(len(choice.phrases)) for choice in grammar.variables.values())):
        values = dict(zip(grammar.variables, picks, strict=True))
        prior = math.prod(row(choice, values)[values[name]] for name, choice in grammar.variables.items())
        if prior > 0:
            for parts in itertools.product(*(sentence_texts(sentence, values) for sentence in grammar.sentences)):
                yield " ".join(text for text, _ in parts), prior * math.prod(p for _, p in parts)


def listed(tales: Tales, grammar: Grammar) -> tuple[Tensor, Tensor]:
    """All stories as ids, and their probabilities, those of several derivations added up."""
    law: dict[str, float] = {}
    for text, p in derivations(grammar):
        law[text] = law.get(text, 0.0) + p
    ids = torch.tensor([tales.encode(text) for text in law])
    return ids, torch.tensor(list(law.values()), dtype=torch.float64)


def reduced(grammar: Grammar) -> tuple[Tales, Tensor, Tensor]:
    tales = Tales(22, grammar)
    return tales, *listed(tales, grammar)


REDUCED = {"agreeing": reduced(AGREEING), "hidden": reduced(HIDDEN)}
GRAMMARS = pytest.mark.parametrize(("tales", "texts", "p"), REDUCED.values(), ids=REDUCED)
FULL = Tales()
STORY = (
    "One windy morning Ivy went to the mountain. She discovered a silver coin near the cliff. "
    "Then an orange otter stole the coin from Ivy. For some bread the otter dropped the coin. "
    "She walked home happily with the coin."
)


def generator(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def uniform(*shape: int, seed: int = 5) -> Tensor:
    return torch.rand(shape, dtype=torch.float64, generator=generator(seed))


def log_probs(tales: Tales, ids: Tensor) -> Tensor:
    """Σ_l log q(x^l | x^{<l})."""
    own = [law.gather(1, x[:, None])[:, 0] for law, x in zip(tales.conditionals(ids), ids.T, strict=True)]
    return torch.stack(own, dim=1).log().sum(1)


# ------------------------------------------------------------------------------- laws


@GRAMMARS
def test_conditionals_are_those_of_the_listed_stories(tales, texts, p):
    """At every beginning of every story: the mass of the stories that begin so, by their next token."""
    assert len(torch.unique(texts, dim=0)) == len(texts)
    assert float(p.sum()) == pytest.approx(1, abs=1e-12)
    positions = 0
    for place, law in enumerate(tales.conditionals(texts)):
        _, prefix = torch.unique(texts[:, :place], dim=0, return_inverse=True) if place else (None, texts[:, 0] * 0)
        mass = torch.zeros(int(prefix.max()) + 1, tales.vocab_size, dtype=torch.float64)
        mass.index_put_((prefix, texts[:, place]), p, accumulate=True)
        torch.testing.assert_close(law, (mass / mass.sum(1, keepdim=True))[prefix], rtol=0, atol=1e-12)
        positions += 1
    assert positions == tales.length


def test_hidden_stories_have_several_derivations():
    assert sum(1 for _ in derivations(HIDDEN)) > 2 * len(REDUCED["hidden"][1])


@GRAMMARS
def test_the_chain_rule_on_all_stories(tales, texts, p):
    torch.testing.assert_close(log_probs(tales, texts), p.log(), rtol=0, atol=1e-11)
    torch.testing.assert_close(log_probs(tales, texts), tales.log_prob(texts, epsilon=0.0), rtol=0, atol=1e-11)


def test_the_chain_rule_at_full_size():
    derived = FULL.derive(500, generator())
    found = log_probs(FULL, derived.ids)
    torch.testing.assert_close(found, derived.log_prob, rtol=0, atol=1e-9)
    torch.testing.assert_close(found, FULL.log_prob(derived.ids, epsilon=0.0), rtol=0, atol=1e-9)


@pytest.mark.parametrize("tales", [FULL, *(tales for tales, _, _ in REDUCED.values())], ids=["full", *REDUCED])
def test_laws_are_laws(tales):
    for law in tales.conditionals(tales.sample(200, generator())):
        assert law.shape == (200, tales.vocab_size)
        assert law.dtype == torch.float64
        assert float(law.min()) >= 0
        torch.testing.assert_close(law.sum(1), torch.ones(200, dtype=torch.float64), rtol=0, atol=1e-12)


def test_padding_is_certain_after_the_end():
    tales = Tales(60)
    ids = tales.sample(100, generator())
    ended = ((ids == tales.end_id).cumsum(1) - (ids == tales.end_id).long()).bool()
    for place, law in enumerate(tales.conditionals(ids)):
        padded = law[ended[:, place]]
        assert bool((padded[:, tales.pad_id] == 1).all())
        assert bool((padded.sum(1) == 1).all())
    assert bool(ended[:, -12:].all())


def test_agreement_shows_in_the_law():
    """What is known of the story is certain when it comes again, and a place has four parts."""
    ids = torch.tensor([FULL.encode(STORY)])
    said = [FULL.vocabulary[i] for i in ids[0].tolist()]
    laws = [dict(zip(FULL.vocabulary, law[0].tolist(), strict=True)) for law in FULL.conditionals(ids)]
    for word, times in {"coin": 4, "Ivy": 2, "otter": 2}.items():
        places = [place for place, other in enumerate(said) if other == word]
        assert len(places) == times
        assert laws[places[0]][word] < 0.1
        assert all(laws[place][word] == pytest.approx(1, abs=1e-12) for place in places[1:])
    at_cliff = laws[said.index("cliff")]
    assert {word for word, q in at_cliff.items() if q > 0} == {"cliff", "pines", "cave", "cabin"}
    assert laws[said.index("mountain") + 2]["he"] == 0


def test_a_story_does_not_depend_on_its_neighbours():
    ids = FULL.sample(40, generator())
    for law, alone, turned in zip(
        FULL.conditionals(ids), FULL.conditionals(ids[7:8]), FULL.conditionals(ids.flip(0)), strict=True
    ):
        assert torch.equal(law[7:8], alone)
        assert torch.equal(law, turned.flip(0))


def test_ids_of_either_size():
    ids = FULL.sample(3, generator())
    for law, same in zip(FULL.conditionals(ids), FULL.conditionals(ids.int()), strict=True):
        assert torch.equal(law, same)


def test_a_reader_goes_on_from_what_it_has_read():
    ids = FULL.sample(6, generator())
    reader = FULL.reader(6)
    for place, law in enumerate(FULL.conditionals(ids)):
        assert reader.position == place
        assert torch.equal(reader.predict(), law)
        assert torch.equal(reader.predict(), law)  # to ask changes nothing
        reader.observe(ids[:, place])


# ---------------------------------------------------------------------------- writing


def counts_of(ids: Tensor, texts: Tensor) -> Tensor:
    """How often each story occurs; all must be listed."""
    _, inverse = torch.unique(torch.cat([texts, ids]), dim=0, return_inverse=True)
    assert int(inverse.max()) < len(texts)
    return torch.bincount(inverse[len(texts) :], minlength=len(texts))[inverse[: len(texts)]]


@GRAMMARS
def test_stories_written_by_uniform_numbers_follow_the_source(tales, texts, p):
    u = uniform(20_000, tales.length)
    assert chi_square_p(counts_of(tales.write(u), texts), p) > REJECT
    assert chi_square_p(counts_of(tales.write(u[:5000].square()), texts), p) < MUTANT


ORDERS = {"id": "id", "probable": "probable", "table": torch.randperm(FULL.vocab_size, generator=generator(1))}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_numbers_from_the_cells_of_stories_write_them(order):
    ids = FULL.sample(1500, generator())  # more than are written together
    found = [
        numbers(cells(law, x, order), generator(place))
        for place, (law, x) in enumerate(zip(FULL.conditionals(ids), ids.T, strict=True))
    ]
    assert torch.equal(FULL.write(torch.stack(found, dim=1), order), ids)


@GRAMMARS
def test_all_stories_are_written_by_numbers_from_their_cells(tales, texts, p):
    del p
    lower, width = zip(*(cells(law, x) for law, x in zip(tales.conditionals(texts), texts.T, strict=True)), strict=True)
    for share in (0.01, 0.5, 0.99):
        u = torch.stack(lower, dim=1) + share * torch.stack(width, dim=1)
        assert torch.equal(tales.write(u), texts)


def test_written_stories_are_valid_at_the_edges_too():
    u = torch.stack([torch.zeros(48), torch.full((48,), 1.0)]).double().clamp_max(1 - 2.0**-53)
    assert bool(FULL.valid(FULL.write(torch.cat([u, uniform(200, 48)]))).all())


def test_the_entropy_is_the_mean_surprise_of_what_is_written():
    surprise = -log_probs(FULL, FULL.write(uniform(1000, 48)))
    assert abs(float(surprise.mean()) - FULL.entropy()) < 4 * float(surprise.std()) / math.sqrt(1000)


# -------------------------------------------------------------------------- bad input


def changed(place: int, word: str) -> Tensor:
    """Three stories, the second of them with another word at a position."""
    ids = torch.tensor([FULL.encode(STORY)] * 3)
    ids[1, place] = FULL.vocabulary.index(word)
    return ids


IMPOSSIBLE = {
    "first word": (0, "[PAD]"),
    "name that is not in the story": (3, "kite"),
    "pronoun": (8, "he"),
    "part of another place": (15, "waves"),
    "end before the end": (16, "[END]"),
    "no end": (44, "she"),
    "word in the padding": (46, "kite"),
    "last token": (47, "[END]"),
}


@pytest.mark.parametrize(("place", "word"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_tokens_are_named(place, word):
    ids = changed(place, word)
    assert FULL.valid(ids).tolist() == [True, False, True]
    laws = FULL.conditionals(ids)
    for _ in range(place):
        next(laws)
    with pytest.raises(ValueError, match=rf"{re.escape(repr(word))}\) at position {place} of story 1,"):
        next(laws)


def test_disturbed_stories_are_errors_exactly_if_invalid():
    ids = FULL.sample(60, generator())
    place = torch.randint(0, FULL.length, (60, 1), generator=generator())
    ids.scatter_(1, place, ids.gather(1, torch.randint(0, FULL.length, (60, 1), generator=generator(6))))
    valid = FULL.valid(ids)
    assert 0 < int(valid.sum()) < 60
    for story, fine in zip(ids, valid.tolist(), strict=True):
        if fine:
            assert math.isfinite(float(log_probs(FULL, story[None])))
        else:
            with pytest.raises(ValueError, match="of story 0"):
                log_probs(FULL, story[None])


IDS = torch.zeros(2, 48, dtype=torch.long)
BAD = {
    "wrong length": (lambda: FULL.conditionals(IDS[:, :40]), r"ids must have shape \[num, 48\]; got \[2, 40\]"),
    "id too large": (lambda: FULL.conditionals(IDS + 9999), "ids must hold ids from 0 to .*9999"),
    "no stories": (lambda: FULL.reader(0), "num must be at least 1; got 0"),
    "too few tokens": (lambda: FULL.reader(3).observe(IDS[0, :2]), r"tokens must have shape \[3\]; got \[2\]"),
    "tokens that are none": (lambda: FULL.reader(1).observe(IDS[0, :1] - 1), "tokens must hold ids from 0 .*-1"),
    "tokens of floats": (lambda: FULL.reader(1).observe(uniform(1)), "tokens must be an integer tensor"),
    "numbers in float32": (lambda: FULL.write(torch.rand(2, 48)), "numbers must be a float64 tensor.*float32"),
    "too few numbers": (lambda: FULL.write(uniform(2, 40)), r"numbers must have shape \[num, 48\]; got \[2, 40\]"),
    "a number of one": (lambda: FULL.write(torch.ones(2, 48).double()), "numbers must be from 0 to 1"),
    "no number": (lambda: FULL.write(uniform(2, 48) * math.nan), "numbers must be from 0 to 1"),
}


@pytest.mark.unchecked
@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
