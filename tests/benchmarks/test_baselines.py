"""What stands beside our figures: baselines of the paper's table 3, and of dense rows."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from benchmarks import embeddings, machine, paper
from ltls import readers
from ltls.metrics import precision_at_k


@pytest.fixture(scope="module")
def rows():
    """600 rows with up to three of eight labels, the last ones rare, told by noisy features."""
    rng = np.random.default_rng(0)
    Y = rng.random((600, 8)) < np.array([0.5, 0.4, 0.3, 0.25, 0.2, 0.1, 0.05, 0.02])
    X = Y @ rng.normal(size=(8, 20)) + rng.normal(size=(600, 20))
    X[np.abs(X) < 0.3] = 0
    return sp.csr_matrix(X), sp.csr_matrix(Y.astype(np.float32))


def test_the_most_frequent_labels():
    Y = sp.csr_matrix([[0, 1, 0, 1, 0], [0, 1, 1, 0, 0], [0, 0, 1, 0, 0]])
    assert paper.most_frequent(Y, 2).tolist() == [1, 2]
    assert paper.most_frequent(Y, 9).tolist() == [1, 2, 3]  # the others have no rows


def test_the_regressions_are_scikit_learns(rows, monkeypatch):
    X, Y = rows
    labels = paper.most_frequent(Y, 3)
    monkeypatch.setattr(paper, "CONSTANTS", (0.5,))
    models = [
        LogisticRegression(C=0.5, solver="liblinear").fit(X, Y[:, [label]].toarray().ravel())
        for label in labels
    ]
    odds = np.stack([model.decision_function(X) for model in models], axis=1)
    expected = precision_at_k(Y, labels[odds.argmax(axis=1)][:, None])
    assert paper.regression(X, Y, X, Y, labels) == pytest.approx(expected, abs=1e-3)


def test_the_regression_has_the_constant_that_is_best_on_held_out_rows(rows):
    X, Y = rows
    labels = paper.most_frequent(Y, 4)
    score = paper.regression(X[:400], Y[:400], X[400:], Y[400:], labels)
    most_frequent = np.asarray(Y[400:, labels[0]].mean())
    oracle = (np.diff(Y[400:, labels].indptr) > 0).mean()
    assert most_frequent < score <= oracle


def test_every_method_learns_dense_rows(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(30, 40))
    y = rng.integers(30, size=1500)
    y[:30] = np.arange(30)
    X = np.maximum(centres[y] + 0.3 * rng.normal(size=(1500, 40)), 0)
    for part, some in (("train", slice(0, 1200)), ("test", slice(1200, 1500))):
        readers.write(tmp_path / f"omniglot_{part}.txt", sp.csr_matrix(X[some]), y[some], "xmc")
    monkeypatch.setenv("LTLS_DATA", str(tmp_path))
    monkeypatch.setattr(machine, "BUILD", tmp_path / "build")
    data = embeddings.embedded("omniglot")
    assert np.linalg.norm(data[0], axis=1) == pytest.approx(1, abs=1e-5)
    for method in filter(embeddings.is_installed, embeddings.METHODS):
        found = embeddings.measure(method, *data)
        assert found["p1"] > 0.9, method
        assert found["p1"] <= found["recall5"] <= 1
        assert found["bytes"] > 0


def test_a_row_has_the_label_that_its_nearest_rows_vote_for():
    X = np.eye(4, dtype=np.float32).repeat(30, axis=0)
    y = np.arange(4).repeat(30)
    y[:29] = 3  # of the rows like row 0
    topk, n_bytes = embeddings.neighbours(X, y, 9)
    assert topk(X[[0, 40, 70]])[:, 0].tolist() == [3, 1, 2]
    assert n_bytes == X.nbytes


def test_votes_of_near_rows_count_more_the_lower_the_temperature():
    y = np.array([7, 8, 8, 9])
    nearest = np.array([[0, 1, 2, -1], [3, -1, -1, -1]])
    cosines = np.array([[0.9, 0.8, 0.7, 0.0], [0.1, 0.0, 0.0, 0.0]])
    found = embeddings.elected(y, nearest, cosines, 0.01)
    assert found.tolist() == [[7, 8, -1, -1], [9, -1, -1, -1]]
    assert embeddings.elected(y, nearest, cosines, 1.0)[0].tolist() == [8, 7, -1, -1]


def test_a_logistic_regression_of_many_labels_is_trained():
    """With scikit-learn's own tolerance it ends before the first step, all weights 0."""
    rng = np.random.default_rng(0)
    y = np.arange(800).repeat(2)
    X = rng.normal(size=(800, 300))[y] + 0.1 * rng.normal(size=(1600, 300))
    X = (0.3 * X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    assert LogisticRegression(C=100).fit(X, y).n_iter_[0] == 0
    topk, _ = embeddings.logistic_regression(X, y, 800)
    assert (topk(X)[:, 0] == y).mean() > 0.9
