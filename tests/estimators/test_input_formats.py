"""The same rows in every accepted format give the same model."""

import comparison
import numpy as np
import pytest
from comparison import EPOCHS, N_ROWS, distance, draw, settings_of, trellises_only, with_each_loss
from scipy.sparse import csr_array, csr_matrix

from ltls import TableCodebook
from ltls.settings import Trellises

CODEBOOK = TableCodebook(22, range(22))


def as_csr(values, indices):
    def convert(X):
        X = csr_matrix(X.astype(values))
        X.indices, X.indptr = X.indices.astype(indices), X.indptr.astype(indices)
        return X

    return convert


def in_halves(X):
    """Every entry twice, half as large."""
    X = csr_matrix(X)
    return csr_matrix((np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), X.indptr * 2), X.shape)


def with_zeros(X):
    everything = csr_matrix(np.ones_like(X))
    everything.data[:] = X.ravel()
    return everything


FORMS = {
    **{f"{v.__name__} by {i.__name__}": as_csr(v, i) for v in (np.float32, np.float64)
       for i in (np.int32, np.int64)},
    "float64": lambda X: X.astype(np.float64),
    "columns": np.asfortranarray,
    "strides": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "csr_array": csr_array,
    "csc": lambda X: csr_matrix(X).tocsc(),
    "coo": lambda X: csr_matrix(X).tocoo(),
    "lists": lambda X: X.tolist(),
    "duplicate entries": in_halves,
    "stored zeros": with_zeros,
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_matrix_type_gives_the_same_model(form):
    X, labels = draw(23, 22)
    expected = comparison.classifier(X, labels, assignment=CODEBOOK)
    rows = form(X)
    entries = getattr(rows, "nnz", None)
    model = comparison.classifier(rows, labels, assignment=CODEBOOK)
    assert distance(model.coef_, expected.coef_) <= 1e-5
    assert distance(model.intercept_, expected.intercept_) <= 1e-5
    assert distance(model.edge_scores(rows), expected.edge_scores(X)) <= 1e-5
    ours, theirs = model.predict_topk(rows, 3)[1], expected.predict_topk(X, 3)[1]
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert getattr(rows, "nnz", None) == entries  # rows are not changed


@with_each_loss
def test_every_multilabel_format_gives_the_same_model(loss):
    X, labels = draw(8, 22, multilabel=True)
    indicator = np.zeros((N_ROWS, 22), int)
    for row, some in enumerate(labels):
        indicator[row, some] = 1
    known = settings_of(loss, "adagrad")
    given = Trellises(assignment=CODEBOOK, shuffle=False, epochs=EPOCHS, **known)
    expected = trellises_only(given).fit(X, labels)
    for form in (indicator, indicator.astype(bool), csr_matrix(indicator), csr_array(indicator)):
        model = trellises_only(given).fit(X, form)
        np.testing.assert_array_equal(model.classes_, np.arange(22))
        np.testing.assert_array_equal(model.coef_, expected.coef_)
    names = [[f"label {c:02}" for c in reversed(some)] for some in labels]
    model = trellises_only(given).fit(X, names)
    assert list(model.classes_) == [f"label {c:02}" for c in range(22)]
    np.testing.assert_array_equal(model.coef_, expected.coef_)
