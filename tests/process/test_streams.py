import pytest
import torch
from scipy import stats

from multimdm.process import MultiMask, Streams
from multimdm.process.draws import philox

FULL = 0xFFFFFFFF
KNOWN_ANSWERS = [  # published with the generator
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([FULL] * 4, [FULL] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_philox_known_answers(counter, key, answer):
    c0, c1, c2, c3 = (torch.tensor([c]) for c in counter)
    k0, k1 = (torch.tensor([k]) for k in key)
    words = philox((c0, c1, c2, c3), (k0, k1))
    assert [int(word) for word in words] == answer


def test_a_sequence_does_not_depend_on_its_neighbours_or_on_padding():
    alone, together = Streams([7]), Streams([3, 7, 5])
    for length in (9, 4):
        assert torch.equal(alone.uniform((1, length))[0], together.uniform((3, length + 6))[1, :length])


def test_draws_of_a_process_do_not_depend_on_the_batch():
    process = MultiMask(50, 5)
    x_0 = torch.randint(0, 50, (4, 12), generator=torch.Generator().manual_seed(0))
    seeds = [10, 20, 30, 40]
    whole = process.couple(x_0, [0.3, 0.8], Streams(seeds))
    for row, seed in enumerate(seeds):
        assert torch.equal(process.couple(x_0[row : row + 1], [0.3, 0.8], Streams([seed]))[:, 0], whole[:, row])


def test_equal_seeds_give_equal_numbers_and_others_do_not():
    assert torch.equal(Streams([1, 2]).uniform((2, 5)), Streams([1, 2]).uniform((2, 5)))
    stream = Streams([1])
    assert not torch.equal(stream.uniform((1, 5)), stream.uniform((1, 5)))
    assert not torch.equal(Streams([1]).uniform((1, 5)), Streams([2]).uniform((1, 5)))


def test_spawned_streams_are_all_different_and_can_be_split_over_ranks():
    seeds = torch.cat([Streams.spawn(seed, 1000).seeds for seed in range(5)])
    assert len(seeds.unique()) == 5000
    halves = torch.cat([Streams.spawn(3, 5).seeds, Streams.spawn(3, 5, first=5).seeds])
    assert torch.equal(halves, Streams.spawn(3, 10).seeds)


def test_numbers_are_uniform_and_independent():
    u = Streams.spawn(0, 200).uniform((200, 1001))
    assert bool((u > 0).all())
    assert bool((u < 1).all())
    assert stats.kstest(u.flatten().numpy(), "uniform").pvalue > 1e-4
    for left, right in ((u[:, :-1], u[:, 1:]), (u[:-1], u[1:])):  # along a sequence, and across sequences
        cells = ((left * 16).long() * 16 + (right * 16).long()).flatten()
        assert stats.chisquare(torch.bincount(cells, minlength=256).numpy()).pvalue > 1e-4


@pytest.mark.unchecked
def test_bad_input():
    with pytest.raises(ValueError, match=r"seeds must be integers.*-1"):
        Streams([-1])
    with pytest.raises(ValueError, match="number of streams, 2; got shape"):
        Streams([1, 2]).uniform((3, 4))
