"""Noise strings that sets of training texts share."""

import pytest
import torch

from multimdm.process import MultiMask
from multimdm.training.noise_strings import NoiseStrings


def strings(seed: int = 0) -> NoiseStrings:
    return NoiseStrings(MultiMask(5, 3), size=4, length=6, reuse=2, seed=seed)


def test_a_set_serves_reuse_times_as_many_texts_as_it_has_strings_and_is_a_function_of_its_number():
    noise = strings()
    assert not any(noise.serves(text) for text in range(20)), "no set is in use yet"
    drawn = []
    for number in range(3):
        noise.turn_to(8 * number + 5)
        assert (noise.number, noise.first) == (number, 8 * number)
        assert [text for text in range(40) if noise.serves(text)] == [*range(8 * number, 8 * number + 8)]
        drawn.append(noise.draw())
        torch.testing.assert_close(noise.draw(), drawn[-1])
    assert len({tuple(row) for one in drawn for row in one.tolist()}) == 12, "all strings differ"
    again, other = strings(), strings(seed=1)
    for one in (again, other):
        one.turn_to(9)
    torch.testing.assert_close(again.draw(), drawn[1])
    assert not torch.equal(other.draw(), drawn[1])


def test_texts_have_their_turn_and_their_place_in_the_set():
    noise = strings()
    noise.turn_to(8)
    assert [noise.place(first, 2) for first in (8, 10, 12, 14)] == [
        (0, slice(0, 2)),
        (0, slice(2, 4)),
        (1, slice(0, 2)),
        (1, slice(2, 4)),
    ]


@pytest.mark.parametrize(("first", "num"), [(6, 2), (16, 2), (10, 4)])
def test_texts_of_other_sets_and_of_two_turns_are_refused(first: int, num: int):
    noise = strings()
    noise.turn_to(8)
    with pytest.raises(ValueError, match=f"texts {first} to {first + num - 1} are not those that the noise in use is"):
        noise.place(first, num)


def test_before_the_first_set_no_text_has_noise():
    with pytest.raises(ValueError, match="texts 0 to 3"):
        strings().place(0, 4)
