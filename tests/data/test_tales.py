"""Probabilities, entropy and draws of story grammars are exact: against lists of all stories, and by samples."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from multimdm.data.tales import Tales
from multimdm.data.tales_grammar import Choice, Grammar, Sentence, by, words
from multimdm.process import Streams
from support.statistics import MUTANT, REJECT, chi_square_p
from support.tiny_stories import TINY, all_strings

# Everything the formalism has: parents, choosers, phrases of several lengths, variables of one sentence and of many.
CLEAR = Grammar(
    {
        "gender": words("girl, boy"),
        "hero": by("gender", {"girl": "Mia, Zoe", "boy": "Tom, Ben"}),
        "thing": words("kite, egg, drum"),
        "event": words("lost, found, kept"),
    },
    {
        "he": by("gender", {"girl": "she", "boy": "he"}),
        "a": by("thing", {"kite": "a", "egg": "an, one big", "drum": "a"}),
        "soon": words("soon, one day, now"),
        "sad": by("event", {"lost": "sad, so sad", "found": "glad, sad", "kept": "glad"}),
    },
    (
        Sentence({(): {"{soon} {hero} saw {a} {thing}": 2, "{hero} had {a} {thing}": 1}}),
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

# The same with stories that have several derivations: a color that shows in one sentence only and a hidden event.
AMBIGUOUS = Grammar(
    {**CLEAR.variables, "color": by("event", {"lost": "red, blue", "found": "red", "kept": "blue, green"})},
    CLEAR.choices,
    (
        CLEAR.sentences[0],
        Sentence(
            {("lost", "found"): {"{he} ran": 3, "{he} was {sad}": 1}, ("found", "kept"): {"{he} saw {color}": 1}},
            given="event",
        ),
        CLEAR.sentences[2],
    ),
)


def stories(grammar: Grammar) -> dict[tuple[str, ...], float]:
    """Every derivation by brute force: words -> probability, derivations of one story added up."""
    found: dict[tuple[str, ...], float] = {}

    def row(choice: Choice, values: dict[str, int]) -> tuple[float, ...]:
        return choice.table[values[choice.given] if choice.given is not None else 0]

    def sentence_texts(sentence: Sentence, values: dict[str, int]) -> list[tuple[tuple[str, ...], float]]:
        name = sentence.given
        value = grammar.variables[name].phrases[values[name]] if name is not None else None
        allowed = [
            (text, weight)
            for group, texts in sentence.templates.items()
            if value is None or value in group
            for text, weight in texts.items()
        ]
        total, results = sum(weight for _, weight in allowed), []
        for text, weight in allowed:
            choices = grammar.symbols(text)
            for picks in itertools.product(*(range(len(choice.phrases)) for choice in choices)):
                p = weight / total * math.prod(row(c, values)[i] for c, i in zip(choices, picks, strict=True))
                phrases = [c.phrases[i].split() for c, i in zip(choices, picks, strict=True)]
                if p > 0:
                    results.append((tuple(itertools.chain(*phrases)), p))
        return results

    for picks in itertools.product(*(range(len(choice.phrases)) for choice in grammar.variables.values())):
        values = dict(zip(grammar.variables, picks, strict=True))
        p = math.prod(row(choice, values)[values[name]] for name, choice in grammar.variables.items())
        if p > 0:
            for parts in itertools.product(*(sentence_texts(sentence, values) for sentence in grammar.sentences)):
                text = tuple(itertools.chain(*(words for words, _ in parts)))
                found[text] = found.get(text, 0.0) + p * math.prod(q for _, q in parts)
    return found


REDUCED = {
    name: (Tales(22, grammar), stories(grammar)) for name, grammar in [("clear", CLEAR), ("ambiguous", AMBIGUOUS)]
}
REDUCED["tiny"] = Tales(6, TINY), stories(TINY)
GRAMMARS = pytest.mark.parametrize(("tales", "law"), REDUCED.values(), ids=REDUCED)
FULL = Tales()


def generator(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def support(tales: Tales, law: dict[tuple[str, ...], float]) -> tuple[Tensor, Tensor]:
    """All stories as ids, and their probabilities."""
    ids = torch.tensor([tales.encode(" ".join(text)) for text in law])
    return ids, torch.tensor(list(law.values()), dtype=torch.float64)


def mixture(tales: Tales, law: dict[tuple[str, ...], float], ids: Tensor, epsilon: float) -> Tensor:
    """log Σ_story p(story) ∏_j ((1-ε) [id_j = token_j] + ε / V), by listing the stories."""
    texts, p = support(tales, law)
    token = torch.log((ids[:, None] == texts).double() * (1 - epsilon) + epsilon / tales.vocab_size)
    return torch.logsumexp(token.sum(-1) + p.log(), dim=1)


def disturbed(tales: Tales, num: int, rate: float) -> Tensor:
    """Stories with some tokens replaced, the tail of the last two thirds moved along by one, and mere noise."""
    source = generator(6)
    ids = tales.sample(num, source)
    noise = torch.randint(0, tales.vocab_size, ids.shape, generator=source)
    ids = torch.where(torch.rand(ids.shape, generator=source) < rate, noise, ids)
    ids[1::3, 2:] = ids[1::3, 1:-1].clone()
    ids[2::3] = noise[2::3]
    return ids


# --------------------------------------------------------------------- probabilities


@GRAMMARS
def test_pure_probabilities_are_those_of_all_derivations(tales, law):
    ids, p = support(tales, law)
    assert float(p.sum()) == pytest.approx(1, abs=1e-12)
    assert len(torch.unique(ids, dim=0)) == len(ids)
    torch.testing.assert_close(tales.log_prob(ids, epsilon=0.0), p.log(), rtol=0, atol=1e-12)
    assert bool(tales.valid(ids).all())


@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.3])
def test_probabilities_over_all_strings_sum_to_one(epsilon):
    tales, law = REDUCED["tiny"]
    ids = all_strings(tales)
    log_prob = tales.log_prob(ids, epsilon)
    assert float(log_prob.exp().sum()) == pytest.approx(1, abs=1e-10)
    assert int((log_prob > -math.inf).sum()) == (len(ids) if epsilon > 0 else len(law))


@GRAMMARS
@pytest.mark.parametrize("epsilon", [1e-13, 1e-3, 0.2])
def test_judged_probabilities_are_the_mixture_over_all_stories(tales, law, epsilon):
    ids = disturbed(tales, 60, 0.2)
    torch.testing.assert_close(tales.log_prob(ids, epsilon), mixture(tales, law, ids, epsilon), rtol=1e-10, atol=1e-10)


# ----------------------------------------------------------------- entropy and draws


def test_entropy_is_that_of_the_listed_stories():
    tales, law = REDUCED["clear"]
    assert tales.entropy() == pytest.approx(-sum(p * math.log(p) for p in law.values()), abs=1e-12)


def test_entropy_is_the_mean_surprise_of_samples():
    surprise = -FULL.log_prob(FULL.sample(2000, generator(8)), epsilon=0.0)
    error = float(surprise.std()) / math.sqrt(len(surprise))
    assert abs(float(surprise.mean()) - FULL.entropy()) < 4 * error
    assert error < 0.1
    assert 1 < FULL.entropy_per_token < 2


@pytest.mark.parametrize("tales", [FULL, REDUCED["clear"][0]], ids=["full", "clear"])
def test_stories_have_one_derivation(tales):
    derived = tales.derive(1000, generator(9))
    torch.testing.assert_close(tales.log_prob(derived.ids, epsilon=0.0), derived.log_prob, rtol=0, atol=1e-10)


def test_derivations_of_an_ambiguous_grammar_are_added_up():
    tales, _ = REDUCED["ambiguous"]
    derived = tales.derive(1000, generator(9))
    gain = tales.log_prob(derived.ids, epsilon=0.0) - derived.log_prob
    assert float(gain.min()) > -1e-10
    assert float(gain.max()) > 0.1


def counts_of(ids: Tensor, texts: Tensor) -> Tensor:
    """How often each story occurs; all must be listed."""
    _, inverse = torch.unique(torch.cat([texts, ids]), dim=0, return_inverse=True)
    assert int(inverse.max()) < len(texts)
    return torch.bincount(inverse[len(texts) :], minlength=len(texts))[inverse[: len(texts)]]


@GRAMMARS
@pytest.mark.parametrize("streams", [False, True], ids=["generator", "streams"])
def test_draws_follow_the_probabilities(tales, law, streams):
    num = 40_000
    ids = tales.sample(num, Streams.spawn(3, num) if streams else generator(3))
    texts, _ = support(tales, law)
    assert chi_square_p(counts_of(ids, texts), tales.log_prob(texts, epsilon=0.0).exp()) > REJECT


def test_draws_of_an_altered_grammar_are_rejected():
    tales, law = REDUCED["clear"]
    sentences = (
        Sentence({(): {"{soon} {hero} saw {a} {thing}": 3, "{hero} had {a} {thing}": 1}}),
        *CLEAR.sentences[1:],
    )
    mutants = [
        Grammar(CLEAR.variables, CLEAR.choices, sentences),
        Grammar(
            {**CLEAR.variables, "thing": words("kite, drum, egg")},
            {**CLEAR.choices, "a": by("thing", {"kite": "a", "drum": "a", "egg": "an, one big"})},
            CLEAR.sentences,
        ),
        Grammar(CLEAR.variables, {**CLEAR.choices, "soon": words("soon, now, one day")}, CLEAR.sentences),
    ]
    texts, p = support(tales, law)
    for mutant in mutants:
        ids = Tales(22, mutant).sample(40_000, generator(3))
        assert chi_square_p(counts_of(ids, texts), p) < MUTANT
