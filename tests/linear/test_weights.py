"""Edge scores of the weights, with every instruction set, against NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from ltls import LTLSClassifier
from ltls.core import _engine
from ltls.features.rows import engine_features
from ltls.linear.weights import Weights, aligned_zeros, padded

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


def make_weights(n_features, n_edges, intercept, dtype="float32"):
    values = aligned_zeros((n_features + intercept, -(-n_edges // 16) * 16), np.float32)
    values[:, :n_edges] = np.random.default_rng(1).normal(size=(len(values), n_edges))
    return Weights(values, None, n_edges, 1, intercept, False).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("intercept", [False, True])
def test_edge_scores_are_the_product_with_the_weights(instruction_set, form, intercept, dtype):
    for n_rows, n_features, n_edges in [(1, 1, 5), (37, 300, 42), (16, 40, 16), (5, 90, 700)]:
        X = matrix(n_rows, n_features)
        weights = make_weights(n_features, n_edges, intercept, dtype)
        features = engine_features(form(X), intercept, False)
        expected = np.column_stack([X.toarray(), np.ones(n_rows)])[:, : len(weights.values)]
        expected = expected @ weights.dense()
        for n_jobs in (1, 3):
            h = weights.without_padding(weights.edge_scores(features, 0, n_rows, n_jobs))
            np.testing.assert_allclose(h, expected, rtol=1e-4, atol=1e-4)


def test_rows_of_any_length_have_their_scores(instruction_set):
    lengths = [0, 1, 3000, 0, 17, 64, 1, 5000, 2]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    rng = np.random.default_rng(2)
    indices = np.concatenate([rng.permutation(5000)[:n] for n in lengths])
    X = sp.csr_matrix((rng.random(len(indices), np.float32), indices, indptr), (9, 5000))
    weights = make_weights(5000, 30, False)
    h = weights.without_padding(weights.edge_scores(engine_features(X, False, False), 0, 9, 1))
    np.testing.assert_allclose(h, X @ weights.dense(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "parameters",
    [
        {"loss": "softmax"},
        {"loss": "logistic", "width": 8},
        {"loss": "separation", "optimizer": "sgd", "average": True},
        {"loss": "softmax", "width": 20, "n_trellises": 2, "average": True},
    ],
)
def test_every_instruction_set_trains_the_same_weights(instruction_set, parameters):
    X = matrix(300, 80)
    y = np.random.default_rng(3).integers(25, size=300)

    def weights():
        model = LTLSClassifier(epochs=1, random_state=0, **parameters)
        return model.fit(X, y).coef_

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
    error = np.abs(halves.astype("float32").values - values)
    assert (error <= np.maximum(largest * 2.0**-11, 2.0**-25)).all()
    bytes_ = weights.astype("int8")
    assert (bytes_.values.dtype, bytes_.scales.shape) == (np.int8, (7,))
    error = np.abs(bytes_.astype("float32").values - values)
    assert (error <= largest / 127 * 0.501).all()


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
