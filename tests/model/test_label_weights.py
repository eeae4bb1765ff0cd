"""Label weights: reranking against NumPy, and what is done with their arrays."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, hstack, random_array

from ltls.core import _engine
from ltls.model.label_weights import LabelWeights

N_ROWS = 5


def random_weights(n_labels, n_features, seed, dtype=None, scale=0.25, **settings):
    """Weights that are multiples of a power of 2, so that sums are exact and scores tie.

    Features have no label, few, many or all of them: the engine treats them differently.
    """
    rng = np.random.default_rng(seed)
    share = rng.choice([0.0, 0.02, 0.5, 1.0], n_features + 1)
    has_weight = rng.random((n_features + 1, n_labels)) < share[:, None]
    labels = [np.flatnonzero(row) for row in has_weight]
    row_ptr = np.concatenate([[0], np.cumsum([len(each) for each in labels])])
    values = rng.integers(-3, 4, row_ptr[-1]).astype(np.int8)
    dtype = dtype or (np.uint16 if n_labels <= 2**16 else np.uint32)
    scales = np.full(n_features + 1, scale, np.float32)
    settings = {"unit_length": False, "weight": 0.5, "n_candidates": 10} | settings
    return LabelWeights(
        row_ptr, np.concatenate(labels).astype(dtype), values, scales, n_labels, **settings
    )


def candidates_of(rng, n_labels, n_candidates, n_rows=N_ROWS):
    ids = np.array([rng.permutation(n_labels)[:n_candidates] for _ in range(n_rows)])
    scores = -np.sort(-rng.integers(-8, 1, ids.shape), axis=1).astype(np.float32)
    for row in range(n_rows):  # rows may end early
        end = rng.integers(0, n_candidates + 1) if row % 2 else n_candidates
        ids[row, end:], scores[row, end:] = -1, -np.inf
    return ids.astype(np.int64), scores


def dense(weights):
    """The weights from their definition, shape (n_labels, n_features + 1)."""
    W = np.zeros((weights.n_labels, len(weights.scales)))
    for feature, scale in enumerate(weights.scales):
        for at in range(weights.row_ptr[feature], weights.row_ptr[feature + 1]):
            W[weights.labels[at], feature] = weights.values[at] * float(scale)
    return W


def reranked(weights, X, ids, scores):
    """(labels, scores), with −max(0, 1 − s)³ + weight · b; ties keep their order."""
    W = dense(weights)
    rows = np.column_stack([X.toarray() if hasattr(X, "indptr") else X, np.ones(X.shape[0])])
    new_ids, new_scores = ids.copy(), scores.copy()
    for row, x in enumerate(rows):
        known = ids[row] >= 0
        s = W[ids[row, known]] @ x
        total = -(np.maximum(0, 1 - s) ** 3) + weights.weight * scores[row, known]
        order = np.argsort(-total, kind="stable")
        new_ids[row, : len(order)] = ids[row, known][order]
        new_scores[row, : len(order)] = total[order]
    return new_ids, new_scores


def small_integers(rng, n_features, form=csr_array):
    X = rng.integers(-2, 3, (N_ROWS, n_features)) * (rng.random((N_ROWS, n_features)) < 0.5)
    return form(X.astype(np.float32))


def assert_reranks(weights, X, ids, scores, n_jobs=None):
    expected = reranked(weights, X, ids, scores)
    weights.rerank(X, ids, scores, n_jobs)
    np.testing.assert_array_equal(ids, expected[0])
    np.testing.assert_allclose(scores, expected[1], rtol=1e-6)


# rerank


@given(
    n_labels=st.integers(1, 400),
    n_features=st.integers(1, 6),
    n_candidates=st.integers(1, 40),
    dtype=st.sampled_from([np.uint16, np.uint32]),
    form=st.sampled_from([csr_array, np.asarray]),
    n_jobs=st.sampled_from([None, 2]),
    seed=st.integers(0, 2**32 - 1),
)
def test_reranking_agrees_with_numpy(n_labels, n_features, n_candidates, dtype, form, n_jobs, seed):
    rng = np.random.default_rng(seed)
    weights = random_weights(n_labels, n_features, seed, dtype)
    ids, scores = candidates_of(rng, n_labels, min(n_candidates, n_labels))
    assert_reranks(weights, small_integers(rng, n_features, form), ids, scores, n_jobs)


@pytest.mark.parametrize("n_candidates", [1, 3, 30, 600])
def test_reranking_with_every_instruction_set(instruction_set, n_candidates):
    rng = np.random.default_rng(0)
    weights = random_weights(600, 30, seed=n_candidates)
    counts = np.diff(weights.row_ptr)
    # Features of all labels, of so many that they are searched, of a few and of none.
    assert {0, 600} <= set(counts)
    if n_candidates < 10:
        assert ((counts > 16 * n_candidates) & (counts < 600)).any()
    assert ((counts > 0) & (counts <= 16 * n_candidates)).any()
    ids, scores = candidates_of(rng, 600, n_candidates)
    assert_reranks(weights, small_integers(rng, 30), ids, scores)


def test_labels_beyond_16_bits():
    rng = np.random.default_rng(1)
    weights = random_weights(70_000, 2, seed=5)
    assert weights.labels.dtype == np.uint32
    assert weights.labels.max() > 2**16
    ids, scores = candidates_of(rng, 70_000, 50)
    ids[0] = 69_999 - np.arange(50)
    ids[2, :2] = [1, 2**16 + 1]  # equal in 16 bits
    scores[0], scores[2] = -np.arange(50), -np.arange(50)
    assert_reranks(weights, small_integers(rng, 2), ids, scores)


def test_ties_keep_their_order():
    weights = random_weights(20, 1, seed=0)
    weights.values[:] = 0
    X = csr_array(np.ones((1, 1), np.float32))
    ids, scores = np.array([[7, 3, 9, 1, 0]]), np.array([[-1, -1, -1, -2, -2]], np.float32)
    weights.rerank(X, ids, scores, None)
    assert ids.tolist() == [[7, 3, 9, 1, 0]]
    np.testing.assert_array_equal(scores, [[-1.5, -1.5, -1.5, -2, -2]])


def test_a_margin_above_1_gains_nothing():
    values = np.array([4, 8, 127], np.int8)
    ptr, labels = np.array([0, 0, 3]), np.arange(3, dtype=np.uint16)
    scales = np.array([1, 0.25], np.float32)
    weights = LabelWeights(ptr, labels, values, scales, 3, False, 1.0, 3)
    ids, scores = np.array([[0, 1, 2]]), np.zeros((1, 3), np.float32)
    weights.rerank(csr_array((1, 1), dtype=np.float32), ids, scores, None)
    assert ids.tolist() == [[0, 1, 2]]
    assert scores.tolist() == [[0, 0, 0]]


def test_rows_of_unit_length():
    rng = np.random.default_rng(2)
    X = random_array((N_ROWS, 8), density=0.5, rng=rng, dtype=np.float32).tocsr()
    lengths = np.sqrt(np.maximum(X.multiply(X).sum(axis=1), 1e-30))
    weights = random_weights(50, 8, seed=1, unit_length=True)
    ids, scores = candidates_of(rng, 50, 20)
    expected = reranked(weights, csr_array(X.toarray() / lengths[:, None]), ids, scores)
    weights.rerank(X, ids, scores, None)
    np.testing.assert_allclose(scores, expected[1], rtol=1e-4, atol=1e-5)


def test_many_rows_are_reranked_in_parts():
    rng = np.random.default_rng(3)
    X = random_array((9000, 6), density=0.5, rng=rng, dtype=np.float32).tocsr()
    weights = random_weights(30, 6, seed=2)
    ids, scores = candidates_of(rng, 30, 10, n_rows=9000)
    expected_ids, expected = ids.copy(), scores.copy()
    for row in range(0, 9000, 50):
        some = slice(row, row + 50)
        weights.rerank(X[some], expected_ids[some], expected[some], None)
    for n_jobs in (1, 2):
        found_ids, found = ids.copy(), scores.copy()
        weights.rerank(X, found_ids, found, n_jobs)
        np.testing.assert_array_equal(found_ids, expected_ids)
        np.testing.assert_array_equal(found, expected)


# Rounding and the matrix


@settings(max_examples=50)
@given(
    n_labels=st.integers(1, 60),
    n_features=st.integers(1, 20),
    density=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_rounding_changes_a_weight_by_at_most_half_a_scale(n_labels, n_features, density, seed):
    rng = np.random.default_rng(seed)
    shape = (n_labels, n_features + 1)
    W = random_array(shape, density=density, rng=rng, data_sampler=rng.standard_normal).tocsr()
    W = W.astype(np.float32)
    weights = LabelWeights.of_matrix(W, unit_length=True, weight=0.3, n_candidates=7)
    assert (weights.unit_length, weights.weight, weights.n_candidates) == (True, 0.3, 7)
    found = weights.matrix()
    assert found.shape == shape
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.toarray(), dense(weights), rtol=1e-6)
    error = np.abs(found.toarray() - W.toarray())
    assert (error <= 0.5001 * weights.scales).all()
    largest = np.abs(W.toarray()).max(axis=0)
    np.testing.assert_allclose(weights.scales, np.where(largest > 0, largest / 127, 1), rtol=1e-6)
    assert weights.engine.n_rows == n_features + 1  # labels increase
    again = LabelWeights.of_matrix(found, unit_length=True, weight=0.3, n_candidates=7)
    np.testing.assert_allclose(again.matrix().toarray(), found.toarray(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("n_labels", "dtype"), [(2**16, np.uint16), (2**16 + 1, np.uint32)])
def test_labels_have_the_smallest_type_that_holds_them(n_labels, dtype):
    W = csr_array(([1.0], ([n_labels - 1], [0])), shape=(n_labels, 2), dtype=np.float32)
    weights = LabelWeights.of_matrix(W, unit_length=False, weight=1, n_candidates=1)
    assert weights.labels.dtype == dtype
    assert weights.labels.tolist() == [n_labels - 1]
    assert (weights.matrix() != W).nnz == 0
    larger = LabelWeights.of_matrix(W, unit_length=False, weight=1, n_candidates=1).add_labels(1)
    assert larger.labels.dtype == np.uint32
    assert larger.labels.tolist() == [n_labels - 1]


def test_more_labels_have_no_weights():
    weights = random_weights(20, 4, seed=0)
    larger = weights.add_labels(3)
    assert larger.matrix().shape == (23, 5)
    np.testing.assert_array_equal(larger.matrix()[:20].toarray(), weights.matrix().toarray())
    assert larger.matrix()[20:].nnz == 0
    assert weights.n_labels == 20
    rng = np.random.default_rng(0)
    ids, scores = candidates_of(rng, 23, 23)
    assert_reranks(larger, small_integers(rng, 4), ids, scores)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_more_features_have_no_weights(n):
    weights = random_weights(20, 4, seed=0)
    larger = weights.add_features(n)
    W = weights.matrix()
    zeros = csr_array((20, n), dtype=np.float32)
    expected = hstack([W[:, :-1], zeros, W[:, [-1]]]).toarray()  # the intercept stays last
    np.testing.assert_array_equal(larger.matrix().toarray(), expected)
    assert larger.scales.dtype == np.float32
    rng = np.random.default_rng(0)
    ids, scores = candidates_of(rng, 20, 20)
    assert_reranks(larger, small_integers(rng, 4 + n), ids, scores)


@pytest.mark.parametrize("density", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_pruning_keeps_the_largest_weights(density):
    rng = np.random.default_rng(0)
    W = random_array((40, 31), density=0.3, rng=rng, data_sampler=rng.standard_normal)
    weights = LabelWeights.of_matrix(
        W.tocsr().astype(np.float32), unit_length=True, weight=0.3, n_candidates=7
    )
    before, pruned = weights.matrix(), weights.prune(density)
    assert (pruned.unit_length, pruned.weight, pruned.n_candidates) == (True, 0.3, 7)
    after = pruned.matrix()
    assert after.nnz == pytest.approx(density * before.nnz, abs=0.02 * before.nnz)
    kept, dropped = after.toarray() != 0, (before.toarray() != 0) & (after.toarray() == 0)
    np.testing.assert_allclose(after.toarray()[kept], before.toarray()[kept], rtol=0.2, atol=1e-2)
    if kept.any() and dropped.any():
        assert np.abs(before.toarray()[kept]).min() >= np.abs(before.toarray()[dropped]).max()
    assert pruned.matrix().shape == (40, 31)
    assert weights.matrix().nnz == before.nnz


def test_weights_of_nothing_can_be_pruned():
    empty = LabelWeights.of_matrix(
        csr_array((3, 4), dtype=np.float32), unit_length=False, weight=1, n_candidates=1
    )
    assert empty.prune(0.5).matrix().nnz == 0
    assert empty.prune(0.5).matrix().shape == (3, 4)


def test_copies_and_other_weights_of_the_trellises():
    weights = random_weights(20, 4, seed=0)
    weights.engine  # noqa: B018 - a cached engine must not be pickled
    rng = np.random.default_rng(0)
    X = small_integers(rng, 4)
    for other in (pickle.loads(pickle.dumps(weights)), weights.with_weight(0.5)):
        ids, scores = candidates_of(np.random.default_rng(0), 20, 10)
        assert_reranks(other, X, ids, scores)
    heavy = weights.with_weight(64.0)
    ids, scores = candidates_of(rng, 20, 10)
    assert weights.weight == 0.5
    assert_reranks(heavy, X, ids, scores)


# Malformed arrays


def engine_weights(**changes):
    arrays = {
        "row_ptr": np.array([0, 2, 2, 5]),
        "labels": np.array([0, 3, 1, 2, 3], np.uint16),
        "values": np.array([1, 2, 3, 4, 5], np.int8),
        "scales": np.ones(3, np.float32),
        "n_labels": 4,
    }
    return _engine.LabelWeights(**(arrays | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": np.array([3, 0, 1, 2, 3], np.uint16)}, "labels of row 0 must increase"),
        ({"labels": np.array([0, 3, 1, 1, 3], np.uint16)}, "labels of row 2 must increase"),
        ({"labels": np.array([0, 4, 1, 2, 3], np.uint16)}, "labels"),
        ({"labels": np.array([0, 2**32 - 1, 1, 2, 3], np.uint32)}, "labels"),
        ({"labels": np.array([0, 3, 1, 2, 3], np.int32)}, "labels must be a vector of uint16"),
        ({"labels": np.zeros((5, 1), np.uint16)}, "labels must be a vector of uint16"),
        ({"labels": np.array([0, 3, 1, 2], np.uint16)}, "labels"),
        ({"n_labels": 3}, "labels"),
        ({"n_labels": 0}, "n_labels must be at least 1"),
        ({"row_ptr": np.array([0, 2, 1, 5])}, "row_ptr of row 1 points outside values"),
        ({"row_ptr": np.array([-1, 2, 2, 5])}, "row_ptr of row 0 points outside values"),
        ({"row_ptr": np.array([0, 2, 2, 6])}, "row_ptr of row 2 points outside values"),
        ({"row_ptr": np.array([], np.int64)}, "row_ptr must not be empty"),
        ({"scales": np.ones(4, np.float32)}, "scales"),
        ({"scales": np.ones(2, np.float32)}, "scales"),
    ],
)  # fmt: skip
def test_malformed_arrays_are_rejected(changes, message):
    assert engine_weights().n_rows == 3
    with pytest.raises(ValueError, match=message):
        engine_weights(**changes)


def test_candidates_that_do_not_fit_are_rejected():
    weights = random_weights(20, 4, seed=0)
    X = csr_array((2, 4), dtype=np.float32)
    ids, scores = np.array([[0, 1], [2, 3]]), np.zeros((2, 2), np.float32)
    for wrong in (20, -2):
        with pytest.raises(ValueError, match="labels"):
            weights.rerank(X, np.array([[0, wrong], [2, 3]]), scores, None)
    with pytest.raises(ValueError, match="X must have 5 features with the intercept, got 6"):
        weights.rerank(csr_array((2, 5), dtype=np.float32), ids, scores, None)
    with pytest.raises(ValueError, match="labels has more rows than X"):
        weights.rerank(X[:1], ids, scores, None)
    with pytest.raises(ValueError, match="scores"):
        weights.rerank(X, ids, np.zeros((2, 3), np.float32), None)
    with pytest.raises(ValueError, match="n_jobs"):
        weights.rerank(X, ids, scores, 0)
