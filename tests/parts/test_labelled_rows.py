"""The nearest of labelled rows and their votes, against all cosines in NumPy."""

import numpy as np
import pytest
import reference_parts as reference
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

from ltls.core import _engine
from ltls.features.rows import Rows

# Rows are found by rounded values: the nearest of more than 64 may be others that are as near.
CLOSE, FEW, ERROR = 0.04, 64, 1e-6


class Stored:
    """Labelled rows of int8 values, of which some have no features and some no labels."""

    def __init__(self, rng, n_rows, n_features=6, n_labels=9):
        shape = (n_rows, n_features)
        self.values = (rng.integers(-127, 128, shape) * (rng.random(shape) < 0.5)).astype(np.int8)
        self.scales = rng.choice([0.25, 1, 8], n_rows).astype(np.float32)
        self.labels = [rng.permutation(n_labels)[: rng.integers(0, 4)] for _ in range(n_rows)]
        X = csr_array(self.values)
        self.engine = _engine.LabelledRows(
            X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data.astype(np.int8),
            self.scales, np.cumsum([0, *map(len, self.labels)]),
            np.concatenate([*self.labels, []]).astype(np.int64), n_features, n_labels,
        )  # fmt: skip

    def nearest(self, rows, k, n_jobs=1):
        found = np.empty((len(rows), k), np.int64), np.empty((len(rows), k), np.float32)
        self.engine.nearest(rows.engine, 0, *found, n_jobs)
        return found


def draw(seed, n_rows, n_queries=4, sparse=True, intercept=True, unit_length=False, **sizes):
    rng = np.random.default_rng(seed)
    stored = Stored(rng, n_rows, **sizes)
    shape = (n_queries, stored.values.shape[1])
    X = (rng.normal(size=shape) * (rng.random(shape) < 0.7)).astype(np.float32)
    if n_rows and n_queries > 1:
        X[1] = stored.values[rng.integers(n_rows)]  # a row that is stored
        X[-1] = 0
    return stored, Rows(csr_array(X) if sparse else X, intercept, unit_length)


def assert_nearest(stored, rows, k, nearest, cosines):
    """Rows have their own cosines, best first, ties to the smaller, and no other row is nearer.

    Cosines of 0 and below are no neighbours, and those that round to 0 need not be.
    """
    queries = reference.scored_rows(rows.X, unit_length=rows.unit_length)
    for query, own, values in zip(queries, nearest, cosines, strict=True):
        every, n = reference.cosines_of(query, stored.values), int((own >= 0).sum())
        assert (own[n:] == -1).all()
        assert not values[n:].any()
        assert len(set(own[:n])) == n
        np.testing.assert_allclose(values[:n], every[own[:n]], rtol=0, atol=ERROR)
        ranked = list(zip(-values[:n], own[:n], strict=True))
        assert ranked == sorted(ranked)
        lowest = values[n - 1] if n == k else 0
        exact = lowest > CLOSE and len(every) <= FEW
        assert np.delete(every, own[:n]).max(initial=0) <= lowest + (ERROR if exact else CLOSE)


sizes = {
    "n_rows": st.integers(0, 300),
    "k": st.integers(1, 12),
    "seed": st.integers(0, 2**32 - 1),
}


@given(**sizes, sparse=st.booleans(), intercept=st.booleans(), unit_length=st.booleans())
def test_the_nearest_rows_are_those_of_the_largest_cosines(
    n_rows, k, seed, sparse, intercept, unit_length
):
    stored, rows = draw(seed, n_rows, sparse=sparse, intercept=intercept, unit_length=unit_length)
    assert_nearest(stored, rows, k, *stored.nearest(rows, k))


@given(n_rows=st.integers(1, FEW), seed=st.integers(0, 2**32 - 1))
def test_a_row_that_is_stored_is_its_own_neighbour(n_rows, seed):
    stored, rows = draw(seed, n_rows)
    rows.X = csr_array(stored.values.astype(np.float32) * stored.scales[:, None])
    nearest, cosines = stored.nearest(Rows(rows.X, False, True), 1)
    has = (stored.values != 0).any(axis=1)
    np.testing.assert_allclose(cosines[:, 0], has, rtol=1e-4)
    np.testing.assert_array_equal(nearest[~has], -1)


def test_threads_and_instruction_sets_give_the_same_bits(instruction_set):
    rng = np.random.default_rng(0)
    stored = Stored(rng, 3000, 200)
    X = random_array((60, 200), density=0.1, rng=rng, format="csr", dtype=np.float32)
    rows = Rows(X, True, True)
    found = stored.nearest(rows, 30)
    for ours, theirs in zip(stored.nearest(rows, 30, n_jobs=3), found, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    _engine.use_instruction_set("baseline")  # the fixture puts the old one back
    for ours, theirs in zip(stored.nearest(rows, 30), found, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_common_features_are_compared_though_they_are_not_searched():
    """Every row has feature 0, and more rows than are read have feature 1: rare ones find rows."""
    n = 70_000  # more than a block
    values = np.zeros((n, 4), np.int8)
    values[:, 0] = 100
    values[::2, 1] = 100
    values[[5, 66_000, 69_999], 2] = 100
    values[66_000, 3] = 100
    X = csr_array(values)
    engine = _engine.LabelledRows(
        X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data, np.ones(n, np.float32),
        np.arange(n + 1), np.zeros(n, np.int64), 4, 1,
    )  # fmt: skip
    nearest, cosines = np.empty((1, 4), np.int64), np.empty((1, 4), np.float32)
    engine.nearest(Rows(np.ones((1, 4), "f4"), False, False).engine, 0, nearest, cosines, 1)
    assert nearest.tolist() == [[66_000, 5, 69_999, -1]]
    np.testing.assert_allclose(cosines, [[1, 0.5**0.5, 0.5**0.5, 0]], rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-6, 1e-3])
@pytest.mark.parametrize("intercept", [False, True])
def test_the_length_of_a_row_changes_nothing(intercept, scale):
    stored, rows = draw(0, 50, sparse=False, intercept=intercept)
    other = Rows(rows.X * np.float32(scale), intercept, False)
    for ours, theirs in zip(stored.nearest(other, 3), stored.nearest(rows, 3), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-3)


@given(**sizes, n_found=st.integers(1, 12))
def test_labels_have_their_share_of_the_votes(n_rows, k, seed, n_found):
    stored, rows = draw(seed, n_rows)
    nearest, cosines = stored.nearest(rows, k)
    labels, shares = np.empty((len(rows), n_found), np.int64), np.empty((len(rows), n_found), "f4")
    stored.engine.votes(nearest, cosines, labels, shares, 1)
    for row in range(len(rows)):
        votes = reference.votes_of(nearest[row], cosines[row], stored.labels)[:n_found]
        order = np.lexsort((labels[row], -shares[row]))  # they are in any order
        assert labels[row][order][: len(votes)].tolist() == [label for label, _ in votes]
        np.testing.assert_allclose(shares[row][order][: len(votes)], [s for _, s in votes], 1e-6)
        assert (labels[row][order][len(votes) :] == -1).all()


# Malformed arrays


def labelled_rows(**changes):
    arrays = {
        "ptr": np.array([0, 2, 3]),
        "features": np.array([0, 3, 1], np.int32),
        "values": np.array([1, 2, 3], np.int8),
        "scales": np.ones(2, np.float32),
        "label_ptr": np.array([0, 1, 2]),
        "labels": np.array([0, 1]),
        "n_features": 4,
        "n_labels": 2,
    }
    return _engine.LabelledRows(**(arrays | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ptr": np.array([0, 3])}, "ptr must have 3 entries"),
        ({"ptr": np.array([0, 2, 4])}, "ptr of entry 1 points outside values"),
        ({"ptr": np.array([0, 2, 1])}, "ptr of entry 1 points outside values"),
        ({"ptr": np.array([-1, 2, 3])}, "ptr of entry 0 points outside values"),
        ({"label_ptr": np.array([0, 2])}, "label_ptr must have 3 entries"),
        ({"label_ptr": np.array([0, 1, 3])}, "ptr of entry 1 points outside values"),
        ({"features": np.array([0, 4, 1], np.int32)}, "features must be between 0 and 3, got 4"),
        ({"features": np.array([0, -1, 1], np.int32)}, "features must be between 0 and 3, got -1"),
        ({"features": np.array([0, 1], np.int32)}, "features must have 3 entries"),
        ({"labels": np.array([0, 2])}, "labels must be between 0 and 1, got 2"),
        ({"labels": np.array([0, -1])}, "labels must be between 0 and 1, got -1"),
    ],
)
def test_malformed_rows_are_rejected(changes, message):
    labelled_rows()
    with pytest.raises(ValueError, match=message):
        labelled_rows(**changes)


def test_arguments_that_do_not_fit_are_rejected():
    engine, rows = labelled_rows(), Rows(np.ones((1, 4), "f4"), True, False).engine
    nearest, cosines = np.array([[0]]), np.ones((1, 1), np.float32)
    other = Rows(np.ones((1, 5), "f4"), True, False).engine
    with pytest.raises(ValueError, match="X must have 5 features with the intercept, got 6"):
        engine.nearest(other, 0, nearest, cosines, 1)
    with pytest.raises(ValueError, match="cosines must have 1 entries"):
        engine.nearest(rows, 0, nearest, np.ones((1, 2), "f4"), 1)
    with pytest.raises(ValueError, match="number of rows to find must be at least 1"):
        engine.nearest(rows, 0, nearest[:, :0], cosines[:, :0], 1)
    for wrong in (2, -2):
        with pytest.raises(ValueError, match=f"nearest must be between -1 and 1, got {wrong}"):
            engine.votes(np.array([[wrong]]), cosines, nearest, cosines, 1)
