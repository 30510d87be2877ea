"""The stories of Tales: English whose agreements hold, read and judged at full size."""

# pyright: reportArgumentType=false

import itertools
import math

import pytest
import torch

from multimdm.data.tales import Tales
from multimdm.data.tales_grammar import Choice, Grammar, Sentence, article, by, words
from multimdm.data.tales_words import DEFAULT
from multimdm.process import Streams

TALES = Tales()
STORY = (
    "One windy morning Ivy went to the mountain. She discovered a silver coin near the cliff. "
    "Then an orange otter stole the coin from Ivy. For some bread the otter dropped the coin. "
    "She walked home happily with the coin."
)


def generator(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def judged(text: str) -> tuple[bool, int, int]:
    """Valid or not, well-formed sentences, sentences."""
    ids = torch.tensor([TALES.encode(text)])
    counts = TALES.valid_sentences(ids)
    return bool(TALES.valid(ids)), int(counts.valid), int(counts.total)


# -------------------------------------------------------------------------- agreement


def test_the_story_is_valid():
    assert judged(STORY) == (True, 5, 5)


EXCHANGED = {
    "name of the same gender": ("Ivy went", "Mia went"),
    "name of the other gender": ("from Ivy", "from Tom"),
    "both names, other gender": ("Ivy", "Tom"),
    "pronoun": ("She discovered", "He discovered"),
    "last pronoun": ("She walked", "He walked"),
    "object": ("the coin from", "the kite from"),
    "first object": ("silver coin", "silver kite"),
    "last object": ("with the coin", "with the kite"),
    "place": ("mountain", "beach"),
    "part of the place": ("cliff", "waves"),
    "animal": ("the otter", "the dog"),
    "event": ("home happily with", "home sadly without"),
}


@pytest.mark.parametrize(("old", "new"), EXCHANGED.values(), ids=EXCHANGED)
def test_an_exchange_is_invalid_though_each_sentence_is_well_formed(old, new):
    assert old in STORY
    text = STORY.replace(old, new)
    assert judged(text) == (False, 5, 5)
    fall = TALES.log_prob(torch.tensor([TALES.encode(STORY), TALES.encode(text)]))
    assert 5 < float(fall[0] - fall[1]) < 60  # a replaced token or two, not the end of the world


MALFORMED = {
    "article before the object's adjective": ("a silver", "an silver"),
    "article before the animal's adjective": ("an orange", "a orange"),
    "animals steal, they are not found": ("stole", "happily"),
    "missing word": ("the coin from", "coin from"),
    "feeling within the sentence": ("home happily with", "home happily without with"),
}


@pytest.mark.parametrize(("old", "new"), MALFORMED.values(), ids=MALFORMED)
def test_errors_within_a_sentence(old, new):
    assert old in STORY
    assert judged(STORY.replace(old, new)) == (False, 4, 5)


def test_pronouns_agree_within_a_sentence():
    text = STORY.replace("She walked home happily with the coin.", "She and her aunt walked home happily.")
    assert judged(text) == (True, 5, 5)
    assert judged(text.replace("and her", "and his")) == (False, 4, 5)


def test_sentences_are_counted_up_to_the_end_marker():
    assert judged("") == (False, 0, 0)
    assert judged("...") == (False, 0, 3)
    assert judged("She smiled happily.") == (False, 1, 1)
    assert judged("She smiled happily. She smiled") == (False, 1, 2)
    ids = torch.tensor([TALES.encode(STORY)])
    ids[0, -1] = TALES.stop_id
    assert [int(count) for count in TALES.valid_sentences(ids)] == [5, 5]
    assert not bool(TALES.valid(ids))
    nothing = torch.full((2, TALES.length), TALES.end_id)
    assert TALES.valid_sentences(nothing).total.tolist() == [0, 0]
    stops = TALES.valid_sentences(torch.full((1, TALES.length), TALES.stop_id))
    assert (int(stops.valid), int(stops.total)) == (0, TALES.length)


def test_samples_are_valid_and_their_articles_right():
    ids = TALES.sample(1500, generator())
    assert bool(TALES.valid(ids).all())
    counts = TALES.valid_sentences(ids[:300])
    assert torch.equal(counts.valid, counts.total)
    assert set(counts.total.tolist()) == {5}
    for row in ids:
        text = TALES.decode(row).split()
        for word, following in itertools.pairwise(text):
            if word.lower() in ("a", "an"):
                assert word.lower() == article(following)
    lengths = (ids == TALES.end_id).int().argmax(1) + 1
    assert TALES.shortest <= int(lengths.min())
    assert int(lengths.max()) == TALES.longest == 48
    assert len(lengths.unique()) > 5


def test_random_ids_are_invalid():
    ids = torch.randint(0, TALES.vocab_size, (100, TALES.length), generator=generator())
    assert not bool(TALES.valid(ids).any())
    assert int(TALES.valid_sentences(ids).valid.sum()) == 0


def test_no_story_of_the_grammar_has_two_derivations():
    """Stops part the sentences; templates exclude one another at some word; templates and words tell the variables."""
    for sentence in DEFAULT.sentences:
        rows = []
        for template in itertools.chain(*sentence.templates.values()):
            choices = DEFAULT.symbols(template)
            phrases = [[phrase.split() for phrase in choice.phrases] for choice in choices]
            for lengths in itertools.product(*({len(phrase) for phrase in options} for options in phrases)):
                rows.append(
                    [
                        {phrase[j] for phrase in options if len(phrase) == length}
                        for options, length in zip(phrases, lengths, strict=True)
                        for j in range(length)
                    ]
                )
        for one, other in itertools.combinations(rows, 2):
            assert len(one) != len(other) or any(not a & b for a, b in zip(one, other, strict=True))
    first = {text for group in DEFAULT.sentences[0].templates.values() for text in group}
    assert all("{hero}" in text and "{place}" in text for text in first)  # the hero tells the gender
    assert all("{object}" in text for group in DEFAULT.sentences[1].templates.values() for text in group)
    assert all("{animal}" in text for group in DEFAULT.sentences[2].templates.values() for text in group)
    assert all(len(events) == 1 for events in DEFAULT.sentences[3].templates)


@pytest.mark.parametrize("epsilon", [1e-5, Tales.EPSILON, 0.5])
def test_any_ids_have_a_finite_probability(epsilon):
    ids = torch.randint(0, TALES.vocab_size, (200, TALES.length), generator=generator())
    ids[0], ids[1], ids[2] = TALES.pad_id, TALES.end_id, TALES.stop_id
    log_prob = TALES.log_prob(ids, epsilon)
    assert bool(torch.isfinite(log_prob).all())
    assert bool((log_prob < 0).all())
    torch.testing.assert_close(TALES.log_prob(ids.int(), epsilon), log_prob)
    torch.testing.assert_close(TALES.log_prob(ids[7:8], epsilon), log_prob[7:8])


def test_replaced_tokens_only():
    ids = TALES.sample(4, generator())
    uniform = -TALES.length * math.log(TALES.vocab_size)
    torch.testing.assert_close(TALES.log_prob(ids, 1.0), torch.full((4,), uniform, dtype=torch.float64))


def test_padding_counts_with_probability_one():
    longer = Tales(64)
    ids = TALES.sample(50, generator())
    padded = torch.nn.functional.pad(ids, (0, 16), value=TALES.pad_id)
    torch.testing.assert_close(longer.log_prob(padded, 0.0), TALES.log_prob(ids, 0.0))
    kept = math.log(1 - TALES.EPSILON + TALES.EPSILON / TALES.vocab_size)
    torch.testing.assert_close(longer.log_prob(padded), TALES.log_prob(ids) + 16 * kept)
    assert longer.entropy() == TALES.entropy()
    assert longer.entropy_per_token == pytest.approx(TALES.entropy() / 64)


def test_a_stream_does_not_depend_on_its_neighbours():
    ids = TALES.sample(20, Streams.spawn(4, 20))
    assert torch.equal(TALES.sample(5, Streams.spawn(4, 5, first=10)), ids[10:15])
    assert len(torch.unique(ids, dim=0)) == 20
    assert torch.equal(TALES.sample(6, generator()), TALES.sample(6, generator()))


def test_encode_and_decode_are_inverse():
    assert TALES.decode(TALES.encode(STORY)) == STORY
    for row in TALES.sample(200, generator()):
        assert TALES.encode(TALES.decode(row)) == row.tolist()


def test_decode_shows_whatever_there_is():
    for row in torch.randint(0, TALES.vocab_size, (50, TALES.length), generator=generator()):
        assert isinstance(TALES.decode(row), str)
    strange = [TALES.vocabulary.index("kite"), TALES.pad_id, TALES.vocab_size + 3, TALES.stop_id, 5, TALES.end_id, 6]
    assert TALES.decode(strange).startswith(f"Kite [PAD] [{TALES.vocab_size + 3}]. ")
    assert TALES.decode([]) == ""


def test_the_vocabulary_has_a_few_hundred_different_words():
    assert len(set(TALES.vocabulary)) == TALES.vocab_size
    assert 200 <= TALES.vocab_size <= 420
    assert [TALES.vocabulary[i] for i in (TALES.pad_id, TALES.end_id, TALES.stop_id)] == ["[PAD]", "[END]", "."]


# -------------------------------------------------------------------------- bad input

IDS = torch.zeros(2, 48, dtype=torch.long)
ONE = (Sentence({(): {"{x}": 1}}),)
BAD = {
    "too short for the stories": (lambda: Tales(20), "length must be at least 48.*got 20"),
    "length not an integer": (lambda: Tales(48.0), "length must be an integer.*48.0"),
    "unknown word": (lambda: TALES.encode("Ivy ate a pizza."), "words of the vocabulary; got 'ate'"),
    "too many words": (lambda: TALES.encode("kite " * 48), "at most 47 words.*got 48"),
    "wrong length": (lambda: TALES.log_prob(IDS[:, :40]), r"shape \[num, 48\]; got \[2, 40\]"),
    "one dimension": (lambda: TALES.valid(IDS[0]), r"shape \[num, 48\]; got \[48\]"),
    "floating point": (lambda: TALES.log_prob(IDS.float()), "ids must be an integer tensor.*float32"),
    "a list": (lambda: TALES.log_prob(IDS.tolist()), "ids must be an integer tensor.*list"),
    "id too large": (lambda: TALES.log_prob(IDS + 9999), "ids must hold ids from 0 to .*9999"),
    "negative id": (lambda: TALES.valid_sentences(IDS - 1), "ids must hold ids from 0 to .*-1"),
    "negative epsilon": (lambda: TALES.log_prob(IDS, -0.1), "epsilon must be 0 or from .* to 1; got -0.1"),
    "tiny epsilon": (lambda: TALES.log_prob(IDS, 1e-30), "epsilon must be 0 or from .* to 1; got 1e-30"),
    "epsilon not a number": (lambda: TALES.log_prob(IDS, "x"), "epsilon must be 0 or from .* to 1; got 'x'"),
    "no stories": (lambda: TALES.sample(0), "num must be at least 1; got 0"),
    "streams": (lambda: TALES.sample(3, Streams([1, 2])), "one stream per story, 3; got 2"),
    "no sentences": (lambda: Grammar({}, {}, ()), "at least one sentence"),
    "unknown symbol": (lambda: Grammar({}, {}, ONE), "known symbols; got 'x'"),
    "unknown variable": (lambda: Grammar({}, {"x": by("y", {"z": "w"})}, ONE), "depend on a variable.*'y'"),
    "values in another order": (
        lambda: Grammar({"y": words("v, w")}, {"x": by("y", {"w": "a", "v": "b"})}, ONE),
        "x must have a row of probabilities for each value of 'y'",
    ),
    "no distribution": (lambda: Grammar({}, {"x": Choice(("a", "b"), ((0.5, 0.6),))}, ONE), "x must have rows of 2"),
    "phrase listed twice": (lambda: Grammar({}, {"x": words("a, b, a")}, ONE), "x must not list a phrase twice"),
    "stop inside": (lambda: Grammar({}, {"x": words("a, b .")}, ONE), "x must be made of words"),
    "weight": (lambda: Grammar({}, {}, (Sentence({(): {"a": 0}}),)), "weights of templates must be positive; got 0"),
    "value without template": (
        lambda: Grammar({"y": words("v, w")}, {}, (Sentence({("v",): {"a": 1}}, given="y"),)),
        "templates for each of",
    ),
    "idle variable": (lambda: Tales(9, Grammar({"y": words("v")}, {"x": words("a")}, ONE)), "'y' is not"),
}


@pytest.mark.unchecked
@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
