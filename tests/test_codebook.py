import itertools
import pickle
import time

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from scipy import stats

from ltls import RandomCodebook, TableCodebook

SIZES = [1, 2, 3, 10, 1000, 10**6, 10**9 + 7, 10**12, 3**39, 2**62 - 1, 2**62]
SEEDS = [0, 1, 2**63, 2**64 - 1]


def labels_of(n, seed=0):
    """Some labels of a codebook of n, the first and the last among them."""
    return np.concatenate([[0, n - 1], np.random.default_rng(seed).integers(n, size=500)])


def assert_is_int(value):
    assert np.ndim(value) == 0
    assert isinstance(value, (int, np.int64))


# RandomCodebook: a permutation


def test_random_codebook_is_a_permutation_for_every_small_size():
    for n in range(1, 5001):
        labels = np.arange(n)
        paths = RandomCodebook(n, seed=n).path_of(labels)
        np.testing.assert_array_equal(np.sort(paths), labels, err_msg=f"n={n}")


def test_random_codebook_is_inverted_for_every_small_size():
    for n in range(1, 5001):
        codebook = RandomCodebook(n, seed=n)
        labels = np.arange(n)
        found = codebook.label_of(codebook.path_of(labels))
        np.testing.assert_array_equal(found, labels, err_msg=f"n={n}")


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_codebook_makes_the_round_trip_at_any_size(n, seed):
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
def test_every_bit_of_the_seed_counts(seeds):
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
def test_random_codebook_never_changes_because_model_files_keep_only_the_seed(n, seed):
    first_paths = FROZEN[n, seed]
    labels = np.arange(len(first_paths))
    assert RandomCodebook(n, seed).path_of(labels).tolist() == first_paths


def test_a_grown_random_codebook_never_changes_either():
    codebook = RandomCodebook(22, seed=7).grow(54).grow(118)
    assert codebook.path_of([0, 21, 22, 53, 54, 117]).tolist() == [12, 9, 40, 28, 101, 88]


# RandomCodebook: as good as a shuffle


def assert_uniform(counts, expected=None):
    assert stats.chisquare(np.ravel(counts), expected).pvalue > 1e-6


@pytest.mark.parametrize("n", [5, 16, 100])
def test_every_label_goes_everywhere_equally_often(n):
    paths = np.array([RandomCodebook(n, seed).path_of(np.arange(n)) for seed in range(4000)])
    for label in range(n):
        assert_uniform(np.bincount(paths[:, label], minlength=n))


@pytest.mark.parametrize("n", [10, 100, 1000])
def test_two_labels_go_to_unrelated_places(n):
    pairs = np.array([RandomCodebook(n, seed).path_of([0, 1]) for seed in range(20_000)])
    groups = 5 * pairs // n
    observed = np.zeros((5, 5))
    np.add.at(observed, (groups[:, 0], groups[:, 1]), 1)
    size = n // 5
    expected = np.full((5, 5), size * size) - np.diag([size] * 5)
    assert_uniform(observed, np.ravel(expected) * len(pairs) / expected.sum())


@pytest.mark.parametrize("n", [10**5, 10**9, 2**62])
def test_labels_in_order_go_to_places_without_order(n):
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


# RandomCodebook: its interface


def test_random_codebook_tells_its_size_and_seed():
    codebook = RandomCodebook(22, seed=7)
    assert (codebook.n_labels, codebook.n_paths, codebook.seed) == (22, 22, 7)
    assert RandomCodebook(22).seed == 0


@pytest.mark.parametrize("direction", ["path_of", "label_of"])
def test_random_codebook_keeps_the_shape_of_its_argument(direction):
    ask = getattr(RandomCodebook(22, seed=7), direction)
    assert_is_int(ask(3))
    assert_is_int(ask(np.int32(3)))
    one_by_one = [ask(i) for i in range(22)]
    for given in (np.arange(22), np.arange(22, dtype=np.uint8), list(range(22))):
        found = ask(given)
        assert found.dtype == np.int64
        assert found.tolist() == one_by_one
    assert ask(np.arange(22).reshape(2, 11)).tolist() == [one_by_one[:11], one_by_one[11:]]
    assert ask(np.arange(22)[::-2]).tolist() == one_by_one[::-2]
    assert ask(np.zeros((0, 3), dtype=np.int64)).shape == (0, 3)


@pytest.mark.parametrize(("direction", "what"), [("path_of", "label"), ("label_of", "path")])
@pytest.mark.parametrize("outside", [-1, 22, 2**62])
def test_random_codebook_refuses_what_is_outside(direction, what, outside):
    ask = getattr(RandomCodebook(22), direction)
    with pytest.raises(ValueError, match=what):
        ask(outside)
    with pytest.raises(ValueError, match=what):
        ask([0, outside, 1])


@pytest.mark.parametrize("n", [0, -1, 2**62 + 1, 2**64])
def test_random_codebook_refuses_impossible_sizes(n):
    with pytest.raises(ValueError, match=rf"\bn\b.*{n}"):
        RandomCodebook(n)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_random_codebook_refuses_impossible_seeds(seed):
    with pytest.raises(ValueError, match="seed"):
        RandomCodebook(22, seed=seed)


def test_random_codebooks_are_equal_when_size_and_seed_are():
    assert RandomCodebook(22, seed=7) == RandomCodebook(22, 7)
    assert RandomCodebook(22, seed=7) != RandomCodebook(22, seed=8)
    assert RandomCodebook(22, seed=7) != RandomCodebook(23, seed=7)
    assert RandomCodebook(22, seed=7) != 22


def test_repr_of_a_random_codebook_tells_size_and_seed():
    text = repr(RandomCodebook(22, seed=7))
    assert text.startswith("RandomCodebook(")
    assert "22" in text
    assert "7" in text


def test_random_codebook_takes_no_memory_for_its_labels():
    assert len(pickle.dumps(RandomCodebook(2**62, seed=2**64 - 1))) < 1000


# RandomCodebook: growth


@pytest.mark.parametrize("sizes", [(1, 2), (22, 54, 118), (1000, 1001, 3000), (10**12, 2**62)])
def test_a_grown_random_codebook_keeps_every_old_label_in_place(sizes):
    codebook = RandomCodebook(sizes[0], seed=7)
    for size in sizes[1:]:
        labels = labels_of(codebook.n_labels)
        before, codebook = codebook, codebook.grow(size)
        assert codebook.n_labels == codebook.n_paths == size
        np.testing.assert_array_equal(codebook.path_of(labels), before.path_of(labels))
        np.testing.assert_array_equal(codebook.label_of(labels), before.label_of(labels))


@pytest.mark.parametrize("sizes", [(1, 2), (22, 54, 118), (1000, 1001, 3000), (10**12, 2**62)])
def test_new_labels_of_a_grown_random_codebook_take_new_paths(sizes):
    codebook = RandomCodebook(sizes[0], seed=7)
    for old, size in itertools.pairwise(sizes):
        codebook = codebook.grow(size)
        labels = old + labels_of(size - old)
        paths = codebook.path_of(labels)
        assert paths.min() >= old
        assert paths.max() < size
        np.testing.assert_array_equal(codebook.label_of(paths), labels)


def test_a_grown_random_codebook_is_a_permutation():
    codebook = RandomCodebook(10, seed=1)
    for size in range(11, 600, 7):
        codebook = codebook.grow(size)
        assert sorted(codebook.path_of(np.arange(size)).tolist()) == list(range(size))


def test_every_block_of_a_grown_random_codebook_is_shuffled_in_its_own_way():
    codebook = RandomCodebook(1000, seed=1).grow(2000).grow(3000)
    blocks = codebook.path_of(np.arange(3000)).reshape(3, 1000) % 1000
    for one, other in [(0, 1), (0, 2), (1, 2)]:
        assert (blocks[one] == blocks[other]).mean() < 0.02
        assert (blocks[other] == np.arange(1000)).mean() < 0.02


@pytest.mark.parametrize("n_paths", [21, 0, 2**62 + 1])
def test_a_random_codebook_cannot_shrink_or_pass_the_limit(n_paths):
    with pytest.raises(ValueError, match="n_paths"):
        RandomCodebook(22).grow(n_paths)


def test_a_grown_random_codebook_remembers_how_it_grew():
    grown = RandomCodebook(22, seed=7).grow(54)
    assert grown == RandomCodebook(22, seed=7).grow(54)
    assert grown != RandomCodebook(54, seed=7)
    assert grown != RandomCodebook(22, seed=7).grow(30).grow(54)


@pytest.mark.parametrize(
    "codebook", [RandomCodebook(22, 7), RandomCodebook(22, 7).grow(54).grow(10**12)], ids=repr
)
def test_a_random_codebook_survives_pickling(codebook):
    twin = pickle.loads(pickle.dumps(codebook))
    assert twin == codebook
    labels = labels_of(codebook.n_labels)
    np.testing.assert_array_equal(twin.path_of(labels), codebook.path_of(labels))


# TableCodebook


def test_table_codebook_maps_labels_and_paths_both_ways():
    codebook = TableCodebook(6, [4, -1, 0])
    assert (codebook.n_labels, codebook.n_paths, codebook.n_free) == (3, 6, 4)
    assert codebook.path_of([0, 1, 2]).tolist() == [4, -1, 0]
    assert codebook.label_of(range(6)).tolist() == [2, -1, -1, -1, 0, -1]
    assert codebook.is_free(range(6)).tolist() == [False, True, True, True, False, True]
    assert codebook.paths.tolist() == [4, -1, 0]


def test_table_codebook_starts_without_labels():
    codebook = TableCodebook(6)
    assert (codebook.n_labels, codebook.n_paths, codebook.n_free) == (0, 6, 6)
    assert codebook.is_free(np.arange(6)).all()


def test_table_codebook_keeps_the_shape_of_its_argument():
    codebook = TableCodebook(6, [4, -1, 0])
    assert_is_int(codebook.path_of(0))
    assert_is_int(codebook.label_of(np.int64(4)))
    assert (codebook.path_of(0), codebook.label_of(4)) == (4, 0)
    assert np.ndim(codebook.is_free(4)) == 0
    assert not codebook.is_free(4)
    assert codebook.is_free(5)
    assert codebook.path_of([[0, 1], [2, 2]]).tolist() == [[4, -1], [0, 0]]
    assert codebook.label_of([[4], [5]]).tolist() == [[0], [-1]]
    assert codebook.is_free([[4], [5]]).tolist() == [[False], [True]]
    assert codebook.path_of([0]).dtype == codebook.label_of([0]).dtype == np.int64
    assert codebook.is_free([0]).dtype == np.bool_
    assert codebook.path_of([]).shape == (0,)


@pytest.mark.parametrize("paths", [[0, 0], [6], [-2], [1, -1, 1]])
def test_table_codebook_refuses_paths_that_are_taken_or_outside(paths):
    with pytest.raises(ValueError, match="path"):
        TableCodebook(6, paths)


def test_table_codebook_refuses_to_have_no_paths():
    with pytest.raises(ValueError, match="n_paths"):
        TableCodebook(0)


@pytest.mark.parametrize(
    ("question", "what", "outside"),
    [
        ("path_of", "label", -1),
        ("path_of", "label", 3),
        ("label_of", "path", -1),
        ("label_of", "path", 6),
        ("is_free", "path", -1),
        ("is_free", "path", 6),
    ],
)
def test_table_codebook_refuses_what_is_outside(question, what, outside):
    ask = getattr(TableCodebook(6, [4, -1, 0]), question)
    with pytest.raises(ValueError, match=what):
        ask(outside)
    with pytest.raises(ValueError, match=what):
        ask([0, outside])


def test_assigning_takes_a_free_path():
    codebook = TableCodebook(6, [4, -1, 0])
    codebook.assign(1, 5)
    assert codebook.paths.tolist() == [4, 5, 0]
    assert codebook.label_of(5) == 1
    assert codebook.n_free == 3


def test_assigning_a_new_label_leaves_gaps_without_a_path():
    codebook = TableCodebook(6, [4])
    codebook.assign(3, 2)
    assert codebook.paths.tolist() == [4, -1, -1, 2]
    assert codebook.n_labels == 4


@pytest.mark.parametrize(("label", "path"), [(1, 4), (0, 5), (0, 4), (1, 6), (1, -1), (-1, 5)])
def test_an_impossible_assignment_changes_nothing(label, path):
    codebook = TableCodebook(6, [4, -1, 0])
    with pytest.raises(ValueError, match=r"label|path"):
        codebook.assign(label, path)
    assert codebook == TableCodebook(6, [4, -1, 0])


def test_a_refused_new_label_does_not_extend_the_codebook():
    codebook = TableCodebook(6, [4, -1, 0])
    with pytest.raises(ValueError, match="path"):
        codebook.assign(10, 4)
    assert codebook.n_labels == 3


def test_a_released_path_is_free_again():
    codebook = TableCodebook(2, [0, 1])
    codebook.release(0)
    assert codebook.paths.tolist() == [-1, 1]
    assert codebook.n_free == 1
    assert codebook.free_path() == 0
    codebook.assign(0, 0)
    assert codebook.n_free == 0


@pytest.mark.parametrize("label", [1, 3, -1])
def test_a_label_without_a_path_cannot_be_released(label):
    with pytest.raises(ValueError, match="label"):
        TableCodebook(6, [4, -1, 0]).release(label)


def test_a_full_codebook_has_no_free_path():
    with pytest.raises(ValueError, match="free"):
        TableCodebook(3, [2, 0, 1]).free_path()


def test_the_table_belongs_to_the_codebook_alone():
    given = np.array([4, -1, 0])
    codebook = TableCodebook(6, given)
    given[0] = 5
    shown = codebook.paths
    if shown.flags.writeable:
        shown[0] = 5
    assert codebook.path_of(0) == 4


def test_a_grown_table_codebook_moves_no_label():
    codebook = TableCodebook(6, [4, -1, 0])
    larger = codebook.grow(10)
    assert larger.n_paths == 10
    assert larger.paths.tolist() == [4, -1, 0]
    assert larger.n_free == 8
    assert larger.is_free(range(6, 10)).all()
    larger.assign(1, 9)
    assert codebook == TableCodebook(6, [4, -1, 0])


def test_a_table_codebook_cannot_shrink():
    with pytest.raises(ValueError, match="n_paths"):
        TableCodebook(6, [0]).grow(5)


def test_table_codebooks_are_equal_when_their_tables_are():
    assert TableCodebook(6, [4, -1, 0]) == TableCodebook(6, np.array([4, -1, 0]))
    assert TableCodebook(6, [4, -1, 0]) != TableCodebook(7, [4, -1, 0])
    assert TableCodebook(6, [4, -1, 0]) != TableCodebook(6, [4, -1, 1])
    assert TableCodebook(6, [4, -1, 0]) != [4, -1, 0]


def test_equality_of_table_codebooks_forgets_how_they_were_filled():
    one, other = TableCodebook(6), TableCodebook(6)
    one.assign(0, 4)
    one.assign(1, 2)
    for label, path in [(1, 4), (0, 2)]:
        other.assign(label, path)
    for label in (0, 1):
        other.release(label)
    other.assign(1, 2)
    other.assign(0, 4)
    assert one == other


def test_repr_of_a_table_codebook_tells_its_size():
    text = repr(TableCodebook(600, [4, -1, 0]))
    assert text.startswith("TableCodebook(")
    assert "600" in text


def test_a_table_codebook_survives_pickling():
    codebook = TableCodebook(6, [4, -1, 0])
    codebook.release(0)
    twin = pickle.loads(pickle.dumps(codebook))
    assert twin == codebook
    assert twin.n_free == 5
    twin.assign(1, 4)
    assert codebook.is_free(4)


def test_taking_and_releasing_a_path_does_not_search_the_table():
    n = 2_000_000
    codebook = TableCodebook(n, np.arange(n - 1))
    start = time.perf_counter()
    for label in range(5000):
        codebook.release(label)
        codebook.assign(label, codebook.free_path())
        codebook.is_free(label)
    assert time.perf_counter() - start < 1


class TableCodebookLife(RuleBasedStateMachine):
    """A table codebook does what a dictionary of label to path does."""

    @initialize(n_paths=st.integers(1, 12), data=st.data())
    def start(self, n_paths, data):
        order = data.draw(st.permutations(range(n_paths)))
        paths = [p if data.draw(st.booleans()) else -1 for p in order]
        self.codebook = TableCodebook(n_paths, paths)
        self.n_paths, self.n_labels = n_paths, len(paths)
        self.path_of = {label: path for label, path in enumerate(paths) if path >= 0}

    def free_paths(self):
        return set(range(self.n_paths)) - set(self.path_of.values())

    @precondition(lambda self: self.free_paths())
    @rule(label=st.integers(0, 20), data=st.data())
    def assign(self, label, data):
        path = data.draw(st.sampled_from(sorted(self.free_paths())))
        if label in self.path_of:
            with pytest.raises(ValueError, match="label"):
                self.codebook.assign(label, path)
        else:
            self.codebook.assign(label, path)
            self.path_of[label] = path
            self.n_labels = max(self.n_labels, label + 1)

    @precondition(lambda self: self.path_of)
    @rule(data=st.data())
    def assign_a_taken_path(self, data):
        path = data.draw(st.sampled_from(sorted(self.path_of.values())))
        with pytest.raises(ValueError, match="path"):
            self.codebook.assign(30, path)

    @precondition(lambda self: self.path_of)
    @rule(data=st.data())
    def release(self, data):
        label = data.draw(st.sampled_from(sorted(self.path_of)))
        self.codebook.release(label)
        del self.path_of[label]

    @rule(added=st.integers(0, 5))
    def grow(self, added):
        self.n_paths += added
        self.codebook = self.codebook.grow(self.n_paths)

    @rule()
    def pickle(self):
        self.codebook = pickle.loads(pickle.dumps(self.codebook))

    @invariant()
    def free_paths_are_counted_and_offered(self):
        free = self.free_paths()
        assert self.codebook.n_free == len(free)
        found = self.codebook.is_free(np.arange(self.n_paths))
        assert set(np.flatnonzero(found).tolist()) == free
        if free:
            assert self.codebook.free_path() in free
        else:
            with pytest.raises(ValueError, match="free"):
                self.codebook.free_path()

    @invariant()
    def labels_and_paths_agree(self):
        expected = [self.path_of.get(label, -1) for label in range(self.n_labels)]
        assert self.codebook.paths.tolist() == expected
        assert self.codebook.path_of(np.arange(self.n_labels)).tolist() == expected
        label_of = {path: label for label, path in self.path_of.items()}
        found = self.codebook.label_of(np.arange(self.n_paths)).tolist()
        assert found == [label_of.get(path, -1) for path in range(self.n_paths)]


TestTableCodebookLife = TableCodebookLife.TestCase
TestTableCodebookLife.settings = settings(max_examples=50, deadline=None)
