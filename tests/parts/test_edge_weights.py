"""Edge scores of dense and pruned weights, with every instruction set, against NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from ltls import LTLSClassifier, RandomCodebook, Trellis
from ltls.core import _engine
from ltls.core.declarations import Described
from ltls.features.rows import Rows
from ltls.parts.base import Sizes
from ltls.parts.edge_weights import (
    Weights,
    aligned_zeros,
    padded,
    weights_from_state,
    weights_state,
)
from ltls.settings import Trellises

FORMS = {
    "csr": lambda X: X,
    "csr, float64": lambda X: X.astype(np.float64),
    "dense": lambda X: X.toarray(),
    "dense, float64": lambda X: X.toarray().astype(np.float64),
}


def matrix(n_rows, n_features, density=0.3):
    X = sp.random(n_rows, n_features, density, "csr", np.float32, np.random.default_rng(0))
    X.sort_indices()
    return X


def random_weights(n_features, n_edges, n_trellises=1, intercept=False, seed=1):
    rng = np.random.default_rng(seed)
    values = aligned_zeros((n_features + intercept, n_trellises * padded(n_edges)), np.float32)
    blocks = values.reshape(len(values), n_trellises, -1)
    blocks[:, :, :n_edges] = rng.normal(size=(len(values), n_trellises, n_edges))
    return Weights(values, None, n_edges, n_trellises, intercept, False)


def edge_scores(weights, X, n_jobs=1, engine=None):
    """h = xW by the engine, without padding."""
    h = np.empty((X.shape[0], weights.stride), np.float32)
    Rows(X, weights.intercept, False).engine.edge_scores(engine or weights.engine, h, 0, n_jobs)
    return weights.without_padding(h)


def expected_scores(weights, X):
    rows = np.column_stack([X.toarray(), np.ones(X.shape[0])])
    return rows[:, : weights.n_features + weights.intercept] @ weights.dense()


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("intercept", [False, True])
def test_edge_scores_are_the_product_with_the_weights(instruction_set, form, intercept, dtype):
    for n_rows, n_features, n_edges in [(1, 1, 5), (37, 300, 42), (16, 40, 16), (5, 90, 700)]:
        X = matrix(n_rows, n_features)
        weights = random_weights(n_features, n_edges, intercept=intercept).astype(dtype)
        for n_jobs in (1, 3):
            found = edge_scores(weights, form(X), n_jobs)
            np.testing.assert_allclose(found, expected_scores(weights, X), rtol=1e-4, atol=1e-4)


def test_rows_of_any_length_have_their_scores(instruction_set):
    lengths = [0, 1, 3000, 0, 17, 64, 1, 5000, 2]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    rng = np.random.default_rng(2)
    indices = np.concatenate([rng.permutation(5000)[:n] for n in lengths])
    X = sp.csr_matrix((rng.random(len(indices), np.float32), indices, indptr), (9, 5000))
    weights = random_weights(5000, 30)
    np.testing.assert_allclose(edge_scores(weights, X), X @ weights.dense(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "given_settings",
    [
        {"loss": "softmax"},
        {"loss": "logistic", "width": 8},
        {"loss": "separation", "optimizer": "sgd", "average": True},
        {"loss": "softmax", "width": 20, "n_trellises": 2, "average": True},
    ],
)
def test_every_instruction_set_trains_the_same_weights(instruction_set, given_settings):
    X = matrix(300, 80)
    y = np.random.default_rng(3).integers(25, size=300)

    def weights():
        trellises = Trellises(epochs=1, dtype="float32", **given_settings)
        return LTLSClassifier(trellises=trellises, random_state=0).fit(X, y).coef_

    found = weights()
    _engine.use_instruction_set("baseline")  # the fixture puts the old one back
    expected = weights()
    assert np.abs(expected).max() > 0.1
    assert np.quantile(np.abs(found - expected), 0.99) < 1e-3


# Storage


@given(seed=st.integers(0, 99), scale=st.floats(1e-3, 1e3))
def test_rounding_errors_are_within_half_a_unit(seed, scale):
    values = scale * np.random.default_rng(seed).normal(size=(7, 32)).astype(np.float32)
    values[3] = 0
    weights = Weights(values, None, 20, 1, False, False)
    largest = np.abs(values).max(axis=1, keepdims=True)
    assert np.array_equal(weights.astype("float32").values, values)
    halves = weights.astype("float16")
    assert halves.values.dtype == np.float16
    error = np.abs(halves.to_float32() - values)
    assert (error <= np.maximum(largest * 2.0**-11, 2.0**-25)).all()
    bytes_ = weights.astype("int8")
    assert (bytes_.values.dtype, bytes_.scales.shape) == (np.int8, (7,))
    assert (np.abs(bytes_.to_float32() - values) <= largest / 127 * 0.501).all()
    for each in (weights, halves, bytes_):
        np.testing.assert_array_equal(each.rows(np.array([5, 0])), each.to_float32()[[5, 0]])


def test_weights_too_large_for_float16_are_rejected():
    weights = Weights(np.full((1, 16), 1e5, np.float32), None, 9, 1, False, False)
    with pytest.raises(ValueError, match="too large for float16"):
        weights.astype("float16")
    with pytest.raises(ValueError, match="dtype must be 'float32', 'float16' or 'int8'"):
        weights.astype("float64")


def test_padding_is_left_out():
    values = np.arange(4 * 64, dtype=np.float32).reshape(4, 64)
    weights = Weights(values, None, 19, 2, True, False)
    assert weights.n_features == 3
    expected = np.concatenate([values[:, :19], values[:, 32:51]], axis=1)
    np.testing.assert_array_equal(weights.dense(), expected)


@pytest.mark.parametrize("n_edges", [1, 15, 16, 17, 32, 100])
def test_blocks_are_padded_to_64_bytes(n_edges):
    assert padded(n_edges) % 16 == 0
    assert n_edges <= padded(n_edges) < n_edges + 16
    assert aligned_zeros((3, padded(n_edges)), np.float32).ctypes.data % 64 == 0


def test_a_copy_does_not_follow_training():
    values = np.zeros((2, 16), np.float32)
    weights = Weights(values, None, 9, 1, False, False)
    copied = weights.copy()
    values[:] = 1
    assert weights.values.all()
    assert not copied.values.any()


# Pruned weights


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
    assert pruned.density == pytest.approx(np.count_nonzero(kept) / kept.size)
    assert (pruned.n_features, pruned.stride) == (n_features, weights.stride)
    some = np.random.default_rng(seed).integers(0, len(kept), 5)
    np.testing.assert_array_equal(pruned.rows(some), pruned.to_float32()[some])


def engines(pruned):
    """Return pruned weights as the engine takes them: as they are, and made dense."""
    parts = (pruned.row_ptr, pruned.columns, pruned.values, pruned.scales)
    return _engine.Weights.pruned(*parts, pruned.stride), pruned.engine


@pytest.mark.parametrize("intercept", [False, True])
def test_edge_scores_are_the_product_with_the_kept_weights(instruction_set, intercept):
    pruned, X = random_weights(50, 70, 2, intercept).prune(0.8), matrix(33, 50)
    for form in (X, X.toarray()):
        for n_jobs in (1, 3):
            for engine in engines(pruned):
                found = edge_scores(pruned, form, n_jobs, engine)
                np.testing.assert_allclose(found, expected_scores(pruned, X), rtol=1e-5, atol=1e-5)


def test_predictors_of_pruned_and_dense_weights_agree(instruction_set):
    trellis, books = Trellis(30, 4), [RandomCodebook(30, seed).engine for seed in range(2)]
    pruned = random_weights(50, trellis.n_edges, 2, True).prune(0.8)
    rows = Rows(np.random.default_rng(2).random((33, 50), np.float32), True, False)
    found = []
    for engine in engines(pruned):
        arguments = (trellis.engine, books, engine, True, False, "softmax", 30, 12, 5)
        labels, scores = np.empty((33, 5), np.int64), np.empty((33, 5), np.float32)
        _engine.Predictor(*arguments).predict(rows.engine, 0, labels, scores, 1)
        found.append((labels, scores))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-5)


def test_the_density_is_about_that_asked_for():
    weights = random_weights(3000, 90, 2, True)
    for density in (0.3, 0.1, 0.01):
        assert weights.pruned(density).density == pytest.approx(density, rel=0.05)


def test_zeros_are_never_kept():
    weights = random_weights(20, 9)
    weights.values[5:] = 0
    assert len(weights.pruned(0.9).values) == 5 * 9


def test_features_without_weights_take_no_scale():
    weights = random_weights(20, 9)
    weights.values[5:] = 0
    pruned = weights.pruned(0.9)
    description, tensors = weights_state(pruned)
    assert len(tensors["scales"]) == 5
    for scales in (tensors["scales"][:1], np.ones(20, np.float32)):
        with pytest.raises(ValueError, match="tensor 'scales' must have shape"):
            read(description, {**tensors, "scales": scales})
    found = read(description, tensors)
    np.testing.assert_array_equal(found.scales, pruned.scales)
    np.testing.assert_array_equal(found.dense(), pruned.dense())


def read(description, tensors):
    """Restore weights of 9 edges and 20 features from their state."""
    section = Described(description, {name: lambda t=t: t for name, t in tensors.items()})
    sizes = Sizes(1, 20, intercept=False, unit_length=False, multilabel=False)
    return weights_from_state(section, 9, 1, sizes)


def test_pruned_weights_are_dense_again():
    pruned = random_weights(20, 9).prune(0.5)
    np.testing.assert_array_equal(pruned.to_dense().dense(), pruned.dense())


def test_rows_that_are_too_long_for_16_bit_places_are_rejected():
    with pytest.raises(
        ValueError, match=r"98,304 weights per feature cannot be pruned .the limit is"
    ):
        random_weights(2, 2**15, 3).prune(0.5)


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
