import pickle
import time

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ltls import TableCodebook


def test_is_free_keeps_the_shape_of_its_argument():
    codebook = TableCodebook(6, [4, -1, 0])
    assert np.ndim(codebook.is_free(4)) == 0
    assert not codebook.is_free(4)
    assert codebook.is_free([[4], [5]]).tolist() == [[False], [True]]
    assert codebook.is_free([0]).dtype == np.bool_
    for outside in (-1, 6, [0, 6]):
        with pytest.raises(ValueError, match="path"):
            codebook.is_free(outside)


@pytest.mark.parametrize("paths", [[0, 0], [6], [-2], [1, -1, 1]])
def test_table_codebook_rejects_duplicate_paths_and_paths_out_of_range(paths):
    with pytest.raises(ValueError, match="path"):
        TableCodebook(6, paths)


def test_table_codebook_needs_at_least_one_path():
    with pytest.raises(ValueError, match="n_paths"):
        TableCodebook(0)


@pytest.mark.parametrize(("label", "path"), [(1, 4), (0, 5), (0, 4), (1, 6), (1, -1), (-1, 5)])
def test_a_rejected_assignment_changes_nothing(label, path):
    codebook = TableCodebook(6, [4, -1, 0])
    with pytest.raises(ValueError, match=r"label|path"):
        codebook.assign(label, path)
    assert codebook == TableCodebook(6, [4, -1, 0])


@pytest.mark.parametrize("label", [1, 3, -1])
def test_a_label_without_a_path_cannot_be_released(label):
    with pytest.raises(ValueError, match="label"):
        TableCodebook(6, [4, -1, 0]).release(label)


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


def test_equality_of_table_codebooks_ignores_the_order_of_assignments():
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


@pytest.mark.perf
def test_assign_and_release_take_constant_time():
    n = 2_000_000
    codebook = TableCodebook(n, np.arange(n - 1))
    start = time.perf_counter()
    for label in range(5000):
        codebook.release(label)
        codebook.assign(label, codebook.free_path())
        codebook.is_free(label)
    assert time.perf_counter() - start < 1


class TableCodebookLife(RuleBasedStateMachine):
    """A table codebook behaves as a dictionary from label to path."""

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
