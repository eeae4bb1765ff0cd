"""Small dense problems: one-vs-all with averaged weights."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from ltls import LTLSClassifier, load
from ltls.training.checkpoint import Checkpoint


def softmax(scores):
    exponents = np.exp(scores - scores.max())
    return exponents / exponents.sum()


def averaged_one_vs_all(X, y, n_classes, epochs, row_length):
    """The same model in plain NumPy: AdaGrad on two weights per class, the average of all steps."""
    rows = np.hstack([X, np.ones((len(X), 1))])
    n_edges = 2 * n_classes + 1  # from the source, to the sink's neighbour, and from there
    W = np.zeros((rows.shape[1], n_edges))
    squares = np.full_like(W, 0.3 * row_length**2)
    total = np.zeros_like(W)
    edges = np.zeros((n_classes, n_edges))
    for c in range(n_classes):
        edges[c, [c, n_classes + c, 2 * n_classes]] = 1
    n_steps = 0
    for _ in range(epochs):
        for x, label in zip(rows, y, strict=True):
            total += W
            n_steps += 1
            step = edges[label] - softmax(edges @ (x @ W)) @ edges
            gradient = np.outer(x, step)
            squares += gradient**2
            W = W + 0.7 / row_length * gradient / np.sqrt(squares)
    return (total + W) / (n_steps + 1) @ edges.T


def test_weights_are_the_average_of_one_vs_all():
    rng = np.random.default_rng(0)
    X = 8 * rng.normal(size=(120, 3)).astype(np.float32)  # of length 14: a power of 2 is 16
    y = np.arange(120) % 4
    model = LTLSClassifier(shuffle=False, epochs=2, random_state=0).fit(X, y)
    assert (model.trellis_.n_edges, len(model.codebooks_)) == (9, 1)
    assert model.model_.trainable.sums is None
    expected = averaged_one_vs_all(X.astype(float), y, 4, 2, 16.0)
    paths = model.codebook_.path_of(np.arange(4))
    scores = model.decision_function(X)
    known = np.hstack([X, np.ones((120, 1))]) @ expected
    known -= np.log(np.exp(known).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(scores, known, rtol=1e-3, atol=1e-3)
    assert sorted(paths.tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("n_classes", [2, 20])
def test_no_worse_than_logistic_regression(n_classes):
    X, y = make_classification(
        2000, 30, n_informative=20, n_classes=n_classes, n_clusters_per_class=1, random_state=1
    )
    model = LTLSClassifier(random_state=0).fit(X[:900], y[:900])
    other = LogisticRegression(tol=1e-2).fit(X[:900], y[:900])
    assert model.score(X[900:], y[900:]) > other.score(X[900:], y[900:]) - 0.01


def test_rare_classes_have_their_intercept():
    weights = [0.6, 0.3, 0.07, 0.03]
    X, y = make_classification(
        3000, 20, n_informative=6, n_classes=4, weights=weights, random_state=0
    )
    model = LTLSClassifier(random_state=0).fit(X[:2000], y[:2000])
    other = LogisticRegression(tol=1e-2).fit(X[:2000], y[:2000])
    found, known = (log_loss(y[2000:], each.predict_proba(X[2000:])) for each in (model, other))
    assert found < known + 0.02


def test_streams_and_memory_give_the_same_model():
    X, y = load_digits(return_X_y=True)
    batches = [(X[first : first + 300], y[first : first + 300]) for first in range(0, 1797, 300)]
    settings = {"shuffle": False, "calibrate": False, "epochs": 2, "random_state": 0}
    whole = LTLSClassifier(**settings).fit(X, y)
    streamed = LTLSClassifier(**settings).fit_stream(batches)
    np.testing.assert_array_equal(whole.coef_, streamed.coef_)


def test_training_goes_on_without_averaging(tmp_path):
    X, y = load_digits(return_X_y=True)
    old = y < 9
    model = LTLSClassifier(random_state=0).fit(X[old], y[old])
    model.save(tmp_path / "model.ltls")
    for each in (model, load(tmp_path / "model.ltls")):
        new = np.flatnonzero(~old)
        for _ in range(3):
            each.partial_fit(X[new[:60]], y[new[:60]])
        assert each.score(X[new[60:]], y[new[60:]]) > 0.8
        assert each.score(X[old], y[old]) > 0.9
    again = LTLSClassifier(random_state=0, warm_start=True).fit(X, y)
    before = again.score(X, y)
    assert again.fit(X, y).score(X, y) > before - 0.01


def test_resuming_is_bit_identical(tmp_path):
    X, y = load_digits(return_X_y=True)
    settings = {"epochs": 4, "random_state": 0}
    whole = LTLSClassifier(**settings).fit(X, y)
    path = tmp_path / "checkpoint"

    class StoppedError(Exception):
        pass

    class Stopping(Checkpoint):
        def save(self, *arguments):
            super().save(*arguments)
            if len(arguments[1].losses) == 2:
                raise StoppedError

    with pytest.raises(StoppedError):
        LTLSClassifier(**settings).fit(X, y, checkpoint=Stopping(path, seconds=0))
    resumed = LTLSClassifier(**settings).fit(X, y, checkpoint=Checkpoint(path, resume=True))
    np.testing.assert_array_equal(resumed.coef_, whole.coef_)
    np.testing.assert_array_equal(resumed.predict_proba(X), whole.predict_proba(X))
