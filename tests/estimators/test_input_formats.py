"""The same rows in every accepted format give the same model."""

import numpy as np
import pytest
from comparison import (
    EPOCHS,
    N_ROWS,
    classifier,
    distance,
    draw,
    settings_of,
    with_each_loss,
)
from scipy.sparse import csr_array, csr_matrix

from ltls import LTLSClassifier, TableCodebook


@pytest.fixture(scope="module")
def plain():
    """Rows, labels, and the classifier fitted on dense float32."""
    X, labels = draw(23, 22)
    return X, labels, classifier(X, labels, random_state=0)


def as_csr(X, values, indices):
    X = csr_matrix(X.astype(values))
    X.indices, X.indptr = X.indices.astype(indices), X.indptr.astype(indices)
    return X


@pytest.mark.parametrize("indices", [np.int32, np.int64])
@pytest.mark.parametrize("values", [np.float32, np.float64])
def test_sparse_and_dense_rows_give_the_same_model(plain, values, indices):
    X, labels, expected = plain
    rows = as_csr(X, values, indices)
    assert rows.indices.dtype == indices
    model = classifier(rows, labels, random_state=0)
    assert distance(model.coef_, expected.coef_) <= 1e-5
    assert distance(model.intercept_, expected.intercept_) <= 1e-5
    expected_scores = expected.predict_topk(X, 3)[1]
    np.testing.assert_allclose(model.predict_topk(rows, 3)[1], expected_scores, atol=1e-4)


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(lambda X: X.astype(np.float64), id="float64"),
        pytest.param(np.asfortranarray, id="columns"),
        pytest.param(lambda X: np.repeat(X, 2, axis=1)[:, ::2], id="strides"),
        pytest.param(lambda X: csr_array(X), id="csr_array"),
        pytest.param(lambda X: csr_matrix(X).tocsc(), id="csc"),
        pytest.param(lambda X: csr_matrix(X).tocoo(), id="coo"),
        pytest.param(lambda X: X.tolist(), id="lists"),
    ],
)
def test_every_matrix_type_gives_the_same_model(plain, form):
    X, labels, expected = plain
    model = classifier(form(X), labels, random_state=0)
    assert distance(model.coef_, expected.coef_) <= 1e-5
    assert distance(model.edge_scores(form(X)), expected.edge_scores(X)) <= 1e-5


def test_duplicate_entries_are_summed(plain):
    X, labels, expected = plain
    whole = csr_matrix(X)
    halves = csr_matrix(
        (np.repeat(whole.data / 2, 2), np.repeat(whole.indices, 2), whole.indptr * 2), X.shape
    )
    assert halves.nnz == 2 * whole.nnz
    model = classifier(halves, labels, random_state=0)
    assert distance(model.coef_, expected.coef_) <= 1e-5
    assert distance(model.edge_scores(halves), expected.edge_scores(X)) <= 1e-5
    assert halves.nnz == 2 * whole.nnz


def test_stored_zeros_have_no_effect(plain):
    X, labels, expected = plain
    everything = csr_matrix(np.ones_like(X))
    everything.data[:] = X.ravel()
    model = classifier(everything, labels, random_state=0)
    assert distance(model.coef_, expected.coef_) <= 1e-5


@with_each_loss
def test_every_multilabel_format_gives_the_same_model(loss):
    X, labels = draw(8, 22, multilabel=True)
    indicator = np.zeros((N_ROWS, 22), int)
    for row, some in enumerate(labels):
        indicator[row, some] = 1
    parameters = settings_of(loss, "adagrad") | {"assignment": TableCodebook(22, range(22))}
    parameters |= {"shuffle": False, "epochs": EPOCHS}
    expected = LTLSClassifier(**parameters).fit(X, labels)
    for form in (indicator, indicator.astype(bool), csr_matrix(indicator), csr_array(indicator)):
        model = LTLSClassifier(**parameters).fit(X, form)
        np.testing.assert_array_equal(model.classes_, np.arange(22))
        np.testing.assert_array_equal(model.coef_, expected.coef_)
    names = [[f"label {c:02}" for c in reversed(some)] for some in labels]
    model = LTLSClassifier(**parameters).fit(X, names)
    assert list(model.classes_) == [f"label {c:02}" for c in range(22)]
    np.testing.assert_array_equal(model.coef_, expected.coef_)


def test_class_names_have_no_effect(plain):
    X, labels, expected = plain
    named = [[f"class {label:02}"] for (label,) in labels]
    model = classifier(X, named, random_state=0)
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    assert list(model.predict(X)) == [f"class {label:02}" for label in expected.predict(X)]
