import pickle

import numpy as np
import pytest
from scipy import stats

from ltls import RandomCodebook

SIZES = [1, 2, 3, 10, 1000, 10**6, 10**9 + 7, 10**12, 3**39, 2**62 - 1, 2**62]
SEEDS = [0, 1, 2**63, 2**64 - 1]


def labels_of(n, seed=0):
    """Some labels of a codebook of n, the first and the last among them."""
    return np.concatenate([[0, n - 1], np.random.default_rng(seed).integers(n, size=500)])


# A permutation


def test_random_codebook_is_a_permutation_for_every_small_size():
    for n in range(1, 5001):
        codebook, labels = RandomCodebook(n, seed=n), np.arange(n)
        paths = codebook.path_of(labels)
        assert paths.min() == 0
        assert paths.max() == n - 1
        assert np.array_equal(codebook.label_of(paths), labels), n  # so no path is taken twice


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_codebook_round_trips_at_any_size(n, seed):
    codebook = RandomCodebook(n, seed)
    labels = labels_of(n)
    paths = codebook.path_of(labels)
    assert paths.min() >= 0
    assert paths.max() < n
    np.testing.assert_array_equal(codebook.label_of(paths), labels)
    np.testing.assert_array_equal(codebook.path_of(codebook.label_of(labels)), labels)


@pytest.mark.parametrize("n", [1000, 10**12])
def test_seeds_give_unrelated_permutations(n):
    labels = labels_of(n)
    one, other = (RandomCodebook(n, seed).path_of(labels) for seed in (0, 1))
    assert (one == other).mean() < 0.02
    assert abs(stats.spearmanr(one, other).statistic) < 0.25


@pytest.mark.parametrize("seeds", [(0, 2**32), (1, 2**63 + 1), (2**64 - 1, 2**32 - 1)])
def test_every_bit_of_the_seed_matters(seeds):
    labels = np.arange(1000)
    one, other = (RandomCodebook(1000, seed).path_of(labels) for seed in seeds)
    assert (one == other).mean() < 0.02


FROZEN = {
    (7, 0): [1, 4, 0, 3, 6, 2, 5],
    (22, 1): [5, 9, 13, 18, 4, 1, 11, 15],
    (1000, 42): [714, 437, 85, 7, 664, 394, 987, 934],
    (10**9, 2**64 - 1): [773406423, 491846772, 503688331, 415674911, 736395901, 399630041],
    (2**62, 12345): [3415546019399735468, 2873661419063527432, 1797193448266715159],
}


@pytest.mark.parametrize(("n", "seed"), FROZEN)
def test_permutations_are_frozen_because_model_files_store_only_the_seed(n, seed):
    first_paths = FROZEN[n, seed]
    labels = np.arange(len(first_paths))
    assert RandomCodebook(n, seed).path_of(labels).tolist() == first_paths


def test_permutations_of_grown_codebooks_are_frozen():
    codebook = RandomCodebook(22, seed=7).grow(54).grow(118)
    assert codebook.path_of([0, 21, 22, 53, 54, 117]).tolist() == [12, 9, 40, 28, 101, 88]


# As good as a shuffle


def assert_uniform(counts, expected=None):
    assert stats.chisquare(np.ravel(counts), expected).pvalue > 1e-6


@pytest.mark.parametrize("n", [5, 16, 100])
def test_paths_of_a_label_are_uniform_over_seeds(n):
    paths = np.array([RandomCodebook(n, seed).path_of(np.arange(n)) for seed in range(4000)])
    for label in range(n):
        assert_uniform(np.bincount(paths[:, label], minlength=n))


@pytest.mark.parametrize("n", [10, 100, 1000])
def test_paths_of_two_labels_are_independent(n):
    pairs = np.array([RandomCodebook(n, seed).path_of([0, 1]) for seed in range(20_000)])
    groups = 5 * pairs // n
    observed = np.zeros((5, 5))
    np.add.at(observed, (groups[:, 0], groups[:, 1]), 1)
    size = n // 5
    expected = np.full((5, 5), size * size) - np.diag([size] * 5)
    assert_uniform(observed, np.ravel(expected) * len(pairs) / expected.sum())


@pytest.mark.parametrize("n", [10**5, 10**9, 2**62])
def test_paths_of_consecutive_labels_are_uncorrelated(n):
    n_labels = 50_000
    paths = RandomCodebook(n, seed=3).path_of(np.arange(n_labels))
    assert_uniform(np.histogram(paths / n, bins=50, range=(0, 1))[0])
    limit = 5 / np.sqrt(n_labels)
    assert abs(stats.spearmanr(np.arange(n_labels), paths).statistic) < limit
    assert abs(stats.spearmanr(paths[:-1], paths[1:]).statistic) < limit


def test_low_bits_are_as_random_as_high_bits():
    paths = RandomCodebook(2**40, seed=5).path_of(np.arange(50_000))
    assert_uniform(np.bincount(paths % 64, minlength=64))
    parity = (paths + np.arange(50_000)) % 2
    assert_uniform(np.bincount(parity, minlength=2))


def test_a_permutation_has_one_fixed_point_on_average():
    labels = np.arange(50)
    counts = [(RandomCodebook(50, seed).path_of(labels) == labels).sum() for seed in range(4000)]
    assert np.mean(counts) == pytest.approx(1, abs=6 / np.sqrt(4000))


# Its interface


def test_random_codebook_exposes_its_size_and_seed():
    codebook = RandomCodebook(22, seed=7)
    assert (codebook.n_labels, codebook.n_paths, codebook.seed) == (22, 22, 7)
    assert RandomCodebook(22).seed == 0


@pytest.mark.parametrize("n", [0, -1, 2**62 + 1, 2**64])
def test_random_codebook_rejects_invalid_sizes(n):
    with pytest.raises(ValueError, match=rf"\bn\b.*{n}"):
        RandomCodebook(n)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_random_codebook_rejects_invalid_seeds(seed):
    with pytest.raises(ValueError, match="seed"):
        RandomCodebook(22, seed=seed)


def test_random_codebook_needs_constant_memory():
    assert len(pickle.dumps(RandomCodebook(2**62, seed=2**64 - 1))) < 1000


# Growth


@pytest.mark.parametrize("sizes", [(1, 2), (22, 54, 118), (1000, 1001, 3000), (10**12, 2**62)])
def test_a_grown_random_codebook_keeps_old_labels_in_place_and_gives_others_new_paths(sizes):
    codebook = RandomCodebook(sizes[0], seed=7)
    for size in sizes[1:]:
        labels = labels_of(codebook.n_labels)
        before, codebook = codebook, codebook.grow(size)
        assert codebook.n_labels == codebook.n_paths == size
        np.testing.assert_array_equal(codebook.path_of(labels), before.path_of(labels))
        np.testing.assert_array_equal(codebook.label_of(labels), before.label_of(labels))
        new = before.n_labels + labels_of(size - before.n_labels)
        paths = codebook.path_of(new)
        assert paths.min() >= before.n_labels
        assert paths.max() < size
        np.testing.assert_array_equal(codebook.label_of(paths), new)


def test_a_grown_random_codebook_is_a_permutation():
    codebook = RandomCodebook(10, seed=1)
    for size in range(11, 600, 7):
        codebook = codebook.grow(size)
        assert sorted(codebook.path_of(np.arange(size)).tolist()) == list(range(size))


def test_every_block_of_a_grown_random_codebook_has_its_own_permutation():
    codebook = RandomCodebook(1000, seed=1).grow(2000).grow(3000)
    blocks = codebook.path_of(np.arange(3000)).reshape(3, 1000) % 1000
    for one, other in [(0, 1), (0, 2), (1, 2)]:
        assert (blocks[one] == blocks[other]).mean() < 0.02
        assert (blocks[other] == np.arange(1000)).mean() < 0.02


@pytest.mark.parametrize("n_paths", [21, 0, 2**62 + 1])
def test_a_random_codebook_cannot_shrink_or_pass_the_limit(n_paths):
    with pytest.raises(ValueError, match="n_paths"):
        RandomCodebook(22).grow(n_paths)
