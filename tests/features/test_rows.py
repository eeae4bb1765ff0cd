"""Rows of features as the engine takes them, and checks of sparse matrices."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from ltls.core import _engine
from ltls.features.rows import Rows, check_sparse

N_ROWS, N_COLUMNS = 5, 7


def matrix(seed=0, kind="csr", index=np.int32):
    rng = np.random.default_rng(seed)
    X = sp.random(N_ROWS, N_COLUMNS, 0.4, "csr", np.float32, rng).asformat(kind)
    if hasattr(X, "indptr"):
        X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    return X


def is_valid(X):
    """Whether the arrays of a CSR or CSC matrix point inside of it, in plain Python."""
    major, minor = X.shape if X.format == "csr" else X.shape[::-1]
    indptr, indices = X.indptr.tolist(), X.indices.tolist()
    if len(indptr) != major + 1 or indptr[0] != 0:
        return False
    if any(begin > end for begin, end in pairwise(indptr)):
        return False
    if indptr[-1] > min(len(indices), len(X.data)):
        return False
    return all(0 <= index < minor for index in indices[: indptr[-1]])


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
def test_valid_matrices_pass(kind):
    check_sparse(matrix(kind=kind), "X")
    check_sparse(sp.csr_matrix((0, 3)), "X")
    check_sparse(sp.csr_matrix((3, 0)), "X")


corruptions = st.lists(
    st.tuples(
        st.sampled_from(["indptr", "indices"]),
        st.integers(0, 30),
        st.sampled_from([-(10**8), -1, 0, 1, 3, N_COLUMNS - 1, N_COLUMNS, 10**8, 2**31 - 1]),
    ),
    max_size=3,
)


@given(
    kind=st.sampled_from(["csr", "csc"]),
    index=st.sampled_from([np.int32, np.int64]),
    seed=st.integers(0, 99),
    changes=corruptions,
    shorter=st.sampled_from([None, "indptr", "indices", "data"]),
)
def test_corrupted_arrays_are_rejected_and_others_pass(kind, index, seed, changes, shorter):
    X = matrix(seed, kind, index)
    for name, place, value in changes:
        array = getattr(X, name)
        if len(array):
            array[place % len(array)] = value
    if shorter is not None:
        setattr(X, shorter, getattr(X, shorter)[:-1])
    if is_valid(X):
        check_sparse(X, "X")
        return
    with pytest.raises(ValueError, match=f"^X is not a valid {kind.upper()} matrix"):
        check_sparse(X, "X")


@given(
    axis=st.sampled_from(["row", "col"]),
    place=st.integers(0, 13),
    value=st.sampled_from([-(10**8), -1, N_COLUMNS, 10**8]),
)
def test_coordinates_out_of_range_are_rejected(axis, place, value):
    X = matrix(kind="coo")
    getattr(X, axis)[place] = value
    with pytest.raises(
        ValueError, match=f"^y is not a valid COO matrix: it has coordinate {value}"
    ):
        check_sparse(X, "y")


def edge_scores(features, weights):
    h = np.empty((N_ROWS, weights.shape[1]), np.float32)
    features.edge_scores(_engine.Weights.dense(weights, None), h, 0, 1)
    return h


def with_mixed_indices(X):
    X = X.copy()
    X.indices = X.indices.astype(np.int64)
    return X


@pytest.mark.parametrize("unit_length", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    "convert",
    [
        lambda X: X,
        lambda X: X.astype(np.float64),
        lambda X: X.toarray(),
        lambda X: np.asfortranarray(X.toarray()),
        lambda X: with_mixed_indices(X),
    ],
    ids=["csr", "float64", "dense", "fortran", "mixed indices"],
)
def test_the_engine_reads_every_layout(convert, intercept, unit_length):
    X = matrix()
    weights = np.zeros((N_COLUMNS + intercept, 16), np.float32)
    weights[:] = np.random.default_rng(1).normal(size=weights.shape)
    rows = Rows(convert(X), intercept, unit_length)
    assert isinstance(rows.engine, _engine.Features)
    assert (len(rows), rows.n_columns) == (N_ROWS, N_COLUMNS + intercept)
    dense = X.toarray()
    if unit_length:
        dense = dense / np.maximum(np.linalg.norm(dense, axis=1, keepdims=True), 1e-30)
    expected = dense @ weights[:N_COLUMNS] + (weights[-1] if intercept else 0)
    np.testing.assert_allclose(edge_scores(rows.engine, weights), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("unit_length", [False, True])
def test_entries_and_lengths_are_those_of_rows_as_they_are_scored(sparse, unit_length):
    X = matrix().tolil()
    X[2] = 0
    rows = Rows(X.tocsr() if sparse else X.toarray(), True, unit_length)
    dense = X.toarray()
    lengths = np.linalg.norm(dense, axis=1)
    lengths[2] = 1
    scored = dense / lengths[:, None] if unit_length else dense
    np.testing.assert_allclose(rows.lengths, np.ones(N_ROWS) if unit_length else lengths)
    for row in range(N_ROWS):
        features, values = rows.entries(row)
        np.testing.assert_array_equal(features, np.flatnonzero(dense[row]))
        np.testing.assert_allclose(values, scored[row, features], rtol=1e-6)
    some = rows[np.array([4, 1])]
    np.testing.assert_array_equal(some.entries(0)[0], rows.entries(4)[0])
    assert (some.sparse, some.intercept, some.unit_length) == (sparse, True, unit_length)
    assert rows.n_values == (X.nnz if sparse else X.shape[0] * X.shape[1])
