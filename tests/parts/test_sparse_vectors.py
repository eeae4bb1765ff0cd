"""Inner products of rows with sparse vectors of labels: exact sums, against NumPy."""

import numpy as np
import pytest
import reference_parts as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, hstack, random_array
from small_parts import N_FEATURES, make_rows, sparse_labels

from ltls.core import _engine
from ltls.features.rows import Rows
from ltls.parts.sparse_labels import SparseLabels

N_ROWS = 5
with_every_size = {
    "n_labels": st.integers(1, 400),
    "n_features": st.integers(1, 6),
    "n_ids": st.integers(1, 40),
    "sparse": st.booleans(),
    "unit_length": st.booleans(),
    "exact": st.booleans(),
    "seed": st.integers(0, 2**32 - 1),
}


def draw(seed, n_labels, n_features, sparse=True, unit_length=False, exact=True):
    rng = np.random.default_rng(seed)
    rows = make_rows(rng, N_ROWS, n_features, sparse)
    if not exact:
        rows.X = rows.X * rng.normal(size=(N_ROWS, n_features)).astype(np.float32)
        rows.X = csr_array(rows.X) if sparse else rows.X
    vectors = sparse_labels(rng, n_labels, n_features + 1, scale=1.0)
    vectors.scales[:] = rng.choice([0.25, 0.5], n_labels) if exact else rng.random(n_labels)
    return Rows(rows.X, True, unit_length), vectors, rng


def values_of(vectors):
    """The int8 values from their definition, (n_labels, n_columns)."""
    values = np.zeros((vectors.n_labels, len(vectors.ptr) - 1), np.int8)
    for feature in range(values.shape[1]):
        for at in range(vectors.ptr[feature], vectors.ptr[feature + 1]):
            values[vectors.labels[at], feature] = vectors.values[at]
    return values


def expected_products(rows, vectors):
    x = reference.scored_rows(rows.X, True, rows.unit_length)
    return reference.inner_products(x, values_of(vectors), vectors.scales)


def largest_products(vectors, rows, n, n_jobs=1):
    ids, products = np.empty((len(rows), n), np.int64), np.empty((len(rows), n), np.float32)
    vectors.engine.largest_products(rows.engine, 0, ids, products, n_jobs)
    return ids, products


@given(**with_every_size, n_jobs=st.sampled_from([None, 2]))
def test_products_are_exact_sums(
    n_labels, n_features, n_ids, sparse, unit_length, exact, seed, n_jobs
):
    rows, vectors, rng = draw(seed, n_labels, n_features, sparse, unit_length, exact)
    ids = rng.integers(-1, n_labels, (N_ROWS, n_ids))  # some of them several times
    wanted = np.take_along_axis(expected_products(rows, vectors), ids, axis=1)
    found = vectors.products(rows, ids, n_jobs)
    np.testing.assert_array_equal(found, np.where(ids < 0, 0, wanted))


@given(**with_every_size, n_jobs=st.sampled_from([1, 2]))
def test_the_largest_products(
    n_labels, n_features, n_ids, sparse, unit_length, exact, seed, n_jobs
):
    rows, vectors, _ = draw(seed, n_labels, n_features, sparse, unit_length, exact)
    found = largest_products(vectors, rows, n_ids, n_jobs)
    wanted = reference.largest(expected_products(rows, vectors), n_ids)
    np.testing.assert_array_equal(found[0], wanted[0])
    np.testing.assert_array_equal(found[1], wanted[1])
    known = np.tile(np.arange(-1, n_labels), (len(rows), 1))
    ids, _, products = vectors.largest_products(rows, n_ids, 1, known)
    np.testing.assert_array_equal(ids, found[0][:, :n_labels])
    np.testing.assert_array_equal(products, vectors.products(rows, known, 1))


@pytest.mark.parametrize("n_ids", [1, 3, 30, 2000])
def test_every_instruction_set_gives_the_same_bits(instruction_set, n_ids):
    rows, vectors, rng = draw(n_ids, 2000, 30, exact=False)
    counts = np.diff(vectors.ptr)
    assert {0, 2000} <= set(counts)  # features of no label and of all
    assert ((counts > 256) & (counts < 2000)).any()  # of many, which have a column
    few = counts[(counts > 0) & (counts < 250)]  # they are searched for one label, or added up
    assert (few > 64).any() if n_ids == 1 else (few <= 64 * n_ids).any()
    ids = np.array([rng.permutation(2000)[:n_ids] for _ in range(N_ROWS)])
    every = expected_products(rows, vectors)
    wanted = np.take_along_axis(every, ids, axis=1)
    np.testing.assert_array_equal(vectors.products(rows, ids, 1), wanted)
    np.testing.assert_array_equal(
        largest_products(vectors, rows, n_ids)[0], reference.largest(every, n_ids)[0]
    )


def test_long_rows_do_not_overflow():
    n = 40_000
    vectors = SparseLabels(
        np.arange(n + 1), np.zeros(n, np.uint16), np.full(n, 127, np.int8), np.ones(1, "f4"), False
    )
    rows = Rows(np.full((1, n), 3, np.float32), False, False)
    found = vectors.products(rows, np.array([[0]]), None)
    np.testing.assert_array_equal(found, expected_products_of_dense(rows.X, vectors))
    assert found[0, 0] == pytest.approx(3 * 127 * n, rel=1e-3)


def expected_products_of_dense(X, vectors):
    return reference.inner_products(X, values_of(vectors), vectors.scales)


def test_rows_without_features_have_products_of_0():
    vectors = sparse_labels(np.random.default_rng(0))
    rows = Rows(csr_array((2, N_FEATURES + 1), dtype=np.float32), False, True)
    assert not vectors.products(rows, np.array([[0, 1], [2, -1]]), None).any()
    assert (vectors.largest_products(rows, 3, None)[0] == -1).all()


def test_rows_of_tiny_numbers():
    vectors = sparse_labels(np.random.default_rng(2))
    X = np.random.default_rng(3).normal(size=(2, N_FEATURES + 1)).astype(np.float32)
    usual, tiny = (Rows(X * np.float32(scale), False, False) for scale in (1, 1e-36))
    ids = np.arange(vectors.n_labels)[None].repeat(2, axis=0)
    expected = vectors.products(usual, ids, None)
    np.testing.assert_allclose(vectors.products(tiny, ids, None) * 1e36, expected, atol=0.05)


def test_threads_that_flush_subnormal_numbers_find_the_same_labels():
    torch = pytest.importorskip("torch", reason="needs torch: run make test-all")
    rows, vectors, _ = draw(0, 65, 1, exact=False)
    expected = largest_products(vectors, rows, 64)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot")
    try:
        found = largest_products(vectors, rows, 64)
    finally:
        torch.set_flush_denormal(False)
    assert (expected[0] == -1).any()
    np.testing.assert_array_equal(found, expected)


def test_labels_beyond_16_bits():
    rng = np.random.default_rng(1)
    vectors = sparse_labels(rng, 70_000, 3)
    assert vectors.labels.dtype == np.uint32
    rows = make_rows(rng, 1, 2)
    ids = np.array([[1, 2**16 + 1, 69_999]])  # the first two are equal in 16 bits
    every = expected_products(rows, vectors)
    np.testing.assert_array_equal(vectors.products(rows, ids, None), every[:, ids[0]])
    np.testing.assert_array_equal(
        largest_products(vectors, rows, 50)[0], reference.largest(every, 50)[0]
    )


# Vectors from a matrix, and more of them


@settings(max_examples=50)
@given(
    n_labels=st.integers(1, 60),
    n_columns=st.integers(2, 20),
    density=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_rounding_changes_a_value_by_at_most_half_a_scale(n_labels, n_columns, density, seed):
    rng = np.random.default_rng(seed)
    W = random_array((n_labels, n_columns), density=density, rng=rng, format="csr")
    W.data = rng.normal(size=W.nnz).astype(np.float32)
    vectors = SparseLabels.of_matrix(W, True)
    found, dense = vectors.matrix().toarray(), W.toarray()
    np.testing.assert_allclose(found, values_of(vectors) * vectors.scales[:, None], rtol=1e-6)
    assert (np.abs(found - dense) <= 0.5001 * vectors.scales[:, None]).all()
    largest = np.abs(dense).max(axis=1)
    np.testing.assert_allclose(vectors.scales, np.where(largest > 0, largest / 127, 1), rtol=1e-6)
    every = np.arange(n_columns)
    for label in range(n_labels):
        np.testing.assert_array_equal(vectors.of_label(label, every), found[label])
    again = SparseLabels.of_matrix(vectors.matrix(), True).matrix().toarray()
    np.testing.assert_allclose(again, found, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("n_labels", "dtype"), [(2**16, np.uint16), (2**16 + 1, np.uint32)])
def test_labels_have_the_smallest_type_that_holds_them(n_labels, dtype):
    W = csr_array(([1.0], ([n_labels - 1], [0])), shape=(n_labels, 2), dtype=np.float32)
    vectors = SparseLabels.of_matrix(W, False)
    assert (vectors.labels.dtype, vectors.labels.tolist()) == (dtype, [n_labels - 1])
    assert (vectors.matrix() != W).nnz == 0
    larger = vectors.grow(n_labels + 1, 0).labels
    assert (larger.dtype, larger.tolist()) == (np.uint32, [n_labels - 1])


@pytest.mark.parametrize("n_new", [0, 1, 5])
@pytest.mark.parametrize("intercept", [False, True])
def test_new_features_come_before_that_of_all_others_and_the_intercept(n_new, intercept):
    vectors = sparse_labels(np.random.default_rng(0))
    vectors = SparseLabels(vectors.ptr, vectors.labels, vectors.values, vectors.scales, intercept)
    W, grown = vectors.matrix(), vectors.grow(vectors.n_labels + 2, n_new)
    at = W.shape[1] - 1 - intercept
    zeros = csr_array((vectors.n_labels, n_new), dtype=np.float32)
    expected = hstack([W[:, :at], zeros, W[:, at:]]).toarray()
    np.testing.assert_array_equal(grown.matrix()[:-2].toarray(), expected)
    assert grown.matrix()[-2:].nnz == 0


# Malformed arrays


def engine_vectors(**changes):
    arrays = {
        "ptr": np.array([0, 2, 2, 5]),
        "ids": np.array([0, 3, 1, 2, 3], np.uint16),
        "values": np.array([1, 2, 3, 4, 5], np.int8),
        "scales": np.ones(4, np.float32),
    }
    return _engine.SparseVectors(**(arrays | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids": np.array([3, 0, 1, 2, 3], np.uint16)}, "ids of feature 0 must increase"),
        ({"ids": np.array([0, 3, 1, 1, 3], np.uint16)}, "ids of feature 2 must increase"),
        ({"ids": np.array([0, 4, 1, 2, 3], np.uint16)}, "ids must be between 0 and 3, got 4"),
        ({"ids": np.array([0, 2**32 - 1, 1, 2, 3], np.uint32)}, "ids must be between"),
        ({"ids": np.array([0, 3, 1, 2, 3], np.int32)}, "ids must be a vector of uint16"),
        ({"ids": np.zeros((5, 1), np.uint16)}, "ids must be a vector of uint16"),
        ({"ids": np.array([0, 3, 1, 2], np.uint16)}, "ids must have 5 entries, got 4"),
        ({"scales": np.ones(3, np.float32)}, "ids must be between 0 and 2, got 3"),
        ({"ptr": np.array([0, 2, 1, 5])}, "ptr of entry 1 points outside values"),
        ({"ptr": np.array([-1, 2, 2, 5])}, "ptr of entry 0 points outside values"),
        ({"ptr": np.array([0, 2, 2, 6])}, "ptr of entry 2 points outside values"),
        ({"ptr": np.array([], np.int64)}, "length of ptr must be at least 1"),
    ],
)  # fmt: skip
def test_malformed_vectors_are_rejected(changes, message):
    engine_vectors()
    with pytest.raises(ValueError, match=message):
        engine_vectors(**changes)


def test_ids_and_rows_that_do_not_fit_are_rejected():
    vectors, out = engine_vectors(), np.empty((1, 1), np.float32)
    rows = Rows(np.ones((1, 2), np.float32), True, False).engine
    for wrong in (4, -2):
        with pytest.raises(ValueError, match=f"ids must be between -1 and 3, got {wrong}"):
            vectors.products(rows, 0, np.array([[wrong]]), out, 1)
    for first in (-1, 1):
        with pytest.raises(ValueError, match="X must have"):
            vectors.products(rows, first, np.array([[0]]), out, 1)
    other = Rows(np.ones((1, 3), np.float32), True, False).engine
    with pytest.raises(ValueError, match="X must have 3 features with the intercept, got 4"):
        vectors.largest_products(other, 0, np.array([[0]]), out, 1)
    with pytest.raises(ValueError, match="out must have 1 entries"):
        vectors.products(rows, 0, np.array([[0]]), np.empty((1, 2), np.float32), 1)
    with pytest.raises(ValueError, match="number of vectors to find must be at least 1"):
        vectors.largest_products(rows, 0, np.empty((1, 0), np.int64), out[:, :0], 1)
