"""Weights with small ones dropped, against NumPy."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from ltls import RandomCodebook, Trellis
from ltls.core import _engine
from ltls.features.rows import engine_features
from ltls.linear.weights import Weights, aligned_zeros, padded


def random_weights(n_features, n_edges, n_trellises, intercept, seed=0):
    rng = np.random.default_rng(seed)
    values = aligned_zeros((n_features + intercept, n_trellises * padded(n_edges)), np.float32)
    blocks = values.reshape(len(values), n_trellises, -1)
    blocks[:, :, :n_edges] = rng.normal(size=(len(values), n_trellises, n_edges))
    return Weights(values, None, n_edges, n_trellises, intercept, False)


@given(
    n_features=st.integers(1, 40),
    n_edges=st.integers(1, 40),
    n_trellises=st.integers(1, 3),
    intercept=st.booleans(),
    threshold=st.floats(0.01, 5),
    seed=st.integers(0, 999),
)
def test_weights_below_the_threshold_are_dropped_and_others_rounded(
    n_features, n_edges, n_trellises, intercept, threshold, seed
):
    weights = random_weights(n_features, n_edges, n_trellises, intercept, seed)
    pruned = weights.prune(threshold)
    kept = np.where(np.abs(weights.dense()) >= threshold, weights.dense(), 0)
    step = np.abs(kept).max(axis=1, keepdims=True) / 127  # of the int8 scale of a row
    assert (np.abs(pruned.dense() - kept) <= 0.51 * step + 1e-6).all()
    assert len(pruned.values) == np.count_nonzero(kept)
    assert pruned.n_features == n_features
    assert pruned.stride == weights.stride


def engines(pruned):
    """Return pruned weights as the engine takes them: as they are, and made dense."""
    parts = (pruned.row_ptr, pruned.columns, pruned.values, pruned.scales)
    return _engine.Weights.pruned(*parts, pruned.stride), pruned.engine


@pytest.mark.parametrize("intercept", [False, True])
def test_edge_scores_are_the_product_with_the_kept_weights(instruction_set, intercept):
    pruned = random_weights(50, 70, 2, intercept).prune(0.8)
    X = sp.random(33, 50, 0.3, "csr", np.float32, np.random.default_rng(1))
    X.sort_indices()
    dense = np.column_stack([X.toarray(), np.ones(33)])[:, : 50 + intercept]
    for form in (X, X.toarray()):
        features = engine_features(form, intercept, False)
        for n_jobs in (1, 3):
            for engine in engines(pruned):
                h = np.empty((33, pruned.stride), np.float32)
                features.edge_scores(engine, h, 0, n_jobs)
                found = pruned.without_padding(h)
                np.testing.assert_allclose(found, dense @ pruned.dense(), rtol=1e-5, atol=1e-5)


def test_predictors_of_pruned_and_dense_weights_agree(instruction_set):
    trellis, books = Trellis(30, 4), [RandomCodebook(30, seed).engine for seed in range(2)]
    pruned = random_weights(50, trellis.n_edges, 2, True).prune(0.8)
    features = engine_features(np.random.default_rng(2).random((33, 50), np.float32), True, False)
    found = []
    for engine in engines(pruned):
        predictor = _engine.Predictor(
            trellis.engine, books, engine, True, False, "softmax", 30, 12, 5
        )
        labels, scores = np.empty((33, 5), np.int64), np.empty((33, 5), np.float32)
        predictor.predict(features, 0, labels, scores, 1)
        found.append((labels, scores))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-5)


def test_the_density_is_about_that_asked_for():
    weights = random_weights(3000, 90, 2, True)
    for density in (0.3, 0.1, 0.01):
        kept = len(weights.prune(weights.magnitude_at(density)).values)
        assert kept == pytest.approx(density * weights.dense().size, rel=0.05)


def test_zeros_are_never_kept():
    weights = random_weights(20, 9, 1, False)
    weights.values[5:] = 0
    pruned = weights.prune(weights.magnitude_at(0.9))
    assert len(pruned.values) == 5 * 9


def test_other_types_are_dense_again():
    pruned = random_weights(20, 9, 1, False).prune(0.5)
    assert pruned.astype("int8") is pruned
    np.testing.assert_array_equal(pruned.astype("float32").dense(), pruned.dense())


def test_rows_that_are_too_long_for_16_bit_places_are_rejected():
    wide = random_weights(2, 2**15, 3, False)
    with pytest.raises(ValueError, match="98,304 weights per feature cannot be pruned, at most"):
        wide.prune(0.5)


def test_copies_and_pickles_score_alike():
    pruned = random_weights(20, 9, 1, False).prune(0.5)
    features = engine_features(np.eye(20, dtype=np.float32), False, False)
    expected = pruned.edge_scores(features, 0, 20, 1)
    for other in (copy.deepcopy(pruned), pickle.loads(pickle.dumps(pruned)), pruned.copy()):
        np.testing.assert_array_equal(other.edge_scores(features, 0, 20, 1), expected)


@pytest.mark.parametrize(
    ("row_ptr", "columns", "message"),
    [
        ([0, 2, 1], [0, 1], "row_ptr of row 1"),
        ([0, 1, 3], [0, 1], "row_ptr of row 1"),
        ([-1, 1, 2], [0, 1], "row_ptr of row 0"),
        ([0, 1, 2], [0, 16], "columns must be below 16, got 16"),
        ([0, 1, 2], [0], "columns must have 2 entries, got 1"),
        ([], [0, 1], "row_ptr must not be empty"),
    ],
)
def test_arrays_that_contradict_each_other_are_rejected(row_ptr, columns, message):
    with pytest.raises(ValueError, match=message):
        _engine.Weights.pruned(
            np.array(row_ptr, np.int64),
            np.array(columns, np.uint16),
            np.ones(2, np.int8),
            np.ones(max(len(row_ptr) - 1, 0), np.float32),
            16,
        )
