import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from multimdm.process import advise_masks, clustered, frequency_balanced, modulo, random_balanced
from multimdm.process.assignment import Groups

SIZES = st.tuples(st.integers(2, 60), st.integers(1, 60)).map(lambda p: (max(p), min(p)))


def assert_balanced(assignment: torch.Tensor, V: int, M: int) -> None:
    assert assignment.shape == (V,)
    assert assignment.dtype == torch.int64
    sizes = torch.bincount(assignment, minlength=M)
    assert len(sizes) == M
    assert int(sizes.min()) >= 1
    assert int(sizes.max() - sizes.min()) <= 1


@given(SIZES, st.integers(0, 5))
def test_balanced_assignments(sizes, seed):
    V, M = sizes
    embeddings = torch.randn(V, 3, generator=torch.Generator().manual_seed(seed))
    for assignment in (modulo(V, M), random_balanced(V, M, seed), clustered(embeddings, M, seed)):
        assert_balanced(assignment, V, M)


def test_modulo_is_the_papers():
    assert modulo(7, 3).tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_random_balanced_depends_on_the_seed_only():
    assert torch.equal(random_balanced(100, 7, seed=4), random_balanced(100, 7, seed=4))
    assert not torch.equal(random_balanced(100, 7, seed=4), random_balanced(100, 7, seed=5))


def heaviest(assignment: torch.Tensor, counts: torch.Tensor) -> float:
    return float(torch.zeros(int(assignment.max()) + 1, dtype=torch.float64).index_add_(0, assignment, counts).max())


@given(st.lists(st.integers(0, 20), min_size=3, max_size=7), st.integers(2, 3))
def test_frequency_balanced_is_within_four_thirds_of_the_best(counts, M):
    counts = torch.tensor(counts, dtype=torch.float64)
    assignment = frequency_balanced(counts, M)
    assert set(assignment.tolist()) == set(range(M))
    best = min(heaviest(torch.tensor(a), counts) for a in itertools.product(range(M), repeat=len(counts)))
    assert heaviest(assignment, counts) <= 4 / 3 * best + 1e-9


@given(
    st.lists(st.floats(0, 1e6), min_size=40, max_size=200),
    st.integers(2, 10),
    st.sampled_from([0.0, 0.7, 1.2, 2.0]),
)
def test_frequency_balanced_has_no_heavy_mask(noise, M, exponent):
    """No mask above the largest token or 4/3 of the mean, for vocabularies of several tokens per mask."""
    ranks = torch.arange(1, len(noise) + 1, dtype=torch.float64)
    counts = ranks**-exponent * (1e6 + torch.tensor(noise, dtype=torch.float64))
    limit = max(float(counts.max()), 4 / 3 * float(counts.sum()) / M)
    assert heaviest(frequency_balanced(counts, M), counts) <= limit * (1 + 1e-12)


def test_frequency_balanced_spreads_tokens_that_never_occur():
    assert_balanced(frequency_balanced([0] * 20, 6), 20, 6)
    assert set(frequency_balanced([100, 0, 0, 0], 3).tolist()) == {0, 1, 2}


def test_clustered_finds_planted_clusters_of_equal_size():
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(5).repeat(20)[torch.randperm(100, generator=generator)]
    centres = 20 * torch.randn(5, 8, generator=generator)
    found = clustered(centres[truth] + torch.randn(100, 8, generator=generator), 5)
    assert len({(int(a), int(b)) for a, b in zip(truth, found, strict=True)}) == 5


def test_clustered_improves_on_its_first_guess():
    generator = torch.Generator().manual_seed(3)
    points = torch.randn(240, 2, generator=generator)

    def spread(assignment: torch.Tensor) -> float:
        centres = torch.stack([points[assignment == m].mean(0) for m in range(8)])
        return float((points - centres[assignment]).square().sum())

    first, last = (spread(clustered(points, 8, seed=1, rounds=rounds)) for rounds in (0, 20))
    assert last < 0.95 * first
    assert last < 0.5 * spread(random_balanced(240, 8))


def test_clustered_survives_equal_embeddings():
    assert_balanced(clustered(torch.zeros(10, 4), 3), 10, 3)


@pytest.mark.parametrize(
    ("N", "L", "M"),
    [
        (1, 5, 1),
        (1000, 1, 1000),
        (1024, 10, 2),
        (1025, 10, 3),
        (10**9, 4, 178),
        (10**16, 1, 10**16),
        (10**400, 2, 10**200),
    ],
)
def test_advice(N, L, M):
    assert advise_masks(N, L) == M
    assert M**L >= N
    assert M == 1 or (M - 1) ** L < N


@given(SIZES, st.booleans())
def test_groups_sum_and_scale_as_the_matrix_does(sizes, periodic):
    V, M = sizes
    assignment = modulo(V, M) if periodic else random_balanced(V, M, seed=1)
    matrix = torch.nn.functional.one_hot(assignment, M).double()  # T transposed
    generator = torch.Generator().manual_seed(0)
    table = torch.rand(3, V, generator=generator, dtype=torch.float64)
    factors = torch.rand(3, M, generator=generator, dtype=torch.float64)
    groups = Groups(assignment, M)
    torch.testing.assert_close(groups.sum(table), table @ matrix)
    torch.testing.assert_close(groups.sum(table[0]), table[0] @ matrix)
    expected = table * (factors @ matrix.T)
    groups.scale_(table, factors)
    torch.testing.assert_close(table, expected)
