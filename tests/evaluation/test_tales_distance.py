"""How far samples are from Tales, and real stories by chance."""

import pytest
import torch

from multimdm.evaluation.tales_distance import chance_level, source_frequencies, tales_distances
from multimdm.process import Streams
from support.present import present
from support.tiny_models import TALES


def test_the_law_of_the_source_is_made_once_and_whole():
    laws = source_frequencies(TALES)
    assert source_frequencies(TALES) is laws
    assert laws.tokens.shape == (TALES.length * TALES.vocab_size,)
    assert laws.pairs.shape == (TALES.vocab_size**2,)
    by_position = laws.tokens.view(TALES.length, TALES.vocab_size).sum(1)
    torch.testing.assert_close(by_position, torch.full_like(by_position, 1 / TALES.length))
    assert float(laws.pairs.sum()) == pytest.approx(1.0)


def test_chance_falls_with_the_number_of_stories():
    """Real stories have tokens at 0.126 and pairs at 0.142 by chance if there are 512 of them."""
    few, many = chance_level(TALES, 128), chance_level(TALES, 512)
    assert many[:2] == pytest.approx((0.126, 0.142), abs=0.003)
    for one, other in zip(few[:3], many[:3], strict=True):  # with few stories most pairs of subjects are never met
        assert one / other == pytest.approx(2.0, rel=0.1)


def test_new_stories_are_at_chance():
    found = tales_distances(TALES, TALES.sample(256, Streams.spawn(7, 256)))
    chances = (found.token_chance, found.pair_chance, found.subject_chance, found.subject_pair_chance)
    assert chances == chance_level(TALES, 256)
    assert present(found.subjects).contains(present(found.subject_chance))
    assert present(found.subject_pairs).contains(present(found.subject_pair_chance))
    assert present(found.tokens).contains(present(found.token_chance))
    assert present(found.pairs).contains(present(found.pair_chance))


def test_wrong_laws_are_told_apart():
    """Few stories over and over are wrong in both; tokens drawn position by position are wrong in pairs alone."""
    stories = TALES.sample(512, Streams.spawn(8, 512))
    repeated = tales_distances(TALES, stories[:16].repeat(32, 1))
    assert present(present(repeated.tokens).low) > 3 * present(repeated.token_chance)
    assert present(present(repeated.pairs).low) > 3 * present(repeated.pair_chance)
    rows = torch.randint(512, stories.shape, generator=torch.Generator().manual_seed(0))
    mixed = tales_distances(TALES, stories.gather(0, rows))
    assert present(mixed.tokens).value < 1.6 * present(mixed.token_chance)
    assert present(present(mixed.pairs).low) > 0.5


def test_stories_about_always_the_same_are_far_and_wrong_words_elsewhere_are_not():
    """What stories are about is a matter of few words: tokens between stories with one name are near, subjects not."""
    stories = TALES.sample(512, Streams.spawn(9, 512))
    names = TALES.variables.read("hero", stories)
    same = tales_distances(TALES, stories[names == names.mode().values])
    assert present(present(same.subjects).low) > 1.2 * present(same.subject_chance)
    wrong = stories.clone()
    wrong[:, 1] = TALES.vocabulary.index("odd")  # never a name, a place or a thing
    found = tales_distances(TALES, wrong)
    assert present(found.tokens).value > present(found.token_chance)
    # The second word of some stories is a name.
    assert present(found.subjects).value < present(found.subject_chance) + 0.15


def test_subjects_are_left_out_if_they_are_not_wanted():
    found = tales_distances(TALES, TALES.sample(8, Streams.spawn(1, 8)), subjects=False)
    assert found.subjects is None
    assert found.pairs is not None
