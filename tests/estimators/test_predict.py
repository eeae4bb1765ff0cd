"""Predictions of LTLSClassifier against a reference learner that enumerates all paths."""

import numpy as np
import pytest
from comparison import (
    LOSSES,
    N_ROWS,
    as_target,
    classifier,
    draw,
    settings_of,
    trained_both,
    with_each_loss,
)
from scipy.sparse import csr_array

from ltls import LTLSClassifier


@pytest.fixture(scope="module", params=LOSSES)
def trained(request):
    """(model, reference learner, rows) with one label per row."""
    loss = request.param
    paths = np.random.default_rng(6).permutation(22)
    return trained_both(22, False, paths=paths, **settings_of(loss, "adagrad"))


def test_edge_scores_are_the_rows_times_the_weights(trained):
    model, _, X = trained
    h = model.edge_scores(X)
    assert h.dtype == np.float32
    np.testing.assert_allclose(h, X @ model.coef_.T + model.intercept_, atol=1e-4)


def test_decision_function_has_the_score_of_every_class(trained):
    model, reference, X = trained
    scores = model.decision_function(X)
    np.testing.assert_allclose(scores, reference.label_scores(X), atol=2e-4)
    np.testing.assert_array_equal(model.predict(X), model.classes_[scores.argmax(axis=1)])


def test_k_above_the_number_of_classes_returns_all_classes(trained):
    model, _, X = trained
    labels, scores = model.predict_topk(X, 50)
    assert labels.shape == scores.shape == (N_ROWS, 22)
    np.testing.assert_array_equal(np.sort(labels), np.tile(np.arange(22), (N_ROWS, 1)))
    assert (np.diff(scores) <= 0).all()


def test_probabilities_depend_on_the_loss(trained):
    model, reference, X = trained
    if model.loss == "separation":
        assert not hasattr(model, "predict_proba")
        return
    expected = np.exp(reference.label_scores(X).astype(float))
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-4)


def test_log_proba_is_the_score_of_the_given_label():
    X, labels = draw(2, 22)
    model = classifier(X, labels, loss="softmax", random_state=0)
    y = as_target(labels, multilabel=False)
    expected = model.decision_function(X)[np.arange(N_ROWS), y]
    np.testing.assert_allclose(model.log_proba(X, y), expected, atol=1e-4)
    everything = np.array([model.log_proba(X, np.full(N_ROWS, c)) for c in range(22)])
    np.testing.assert_allclose(np.exp(everything).sum(axis=0), 1, atol=1e-5)
    with pytest.raises(ValueError, match="22"):
        model.log_proba(X[:1], [22])


@with_each_loss
def test_decision_function_of_two_classes_is_one_difference(loss):
    X, labels = draw(0, 2)
    model = classifier(X, labels, loss=loss, random_state=0)
    labels, scores = model.predict_topk(X, 2)
    of_class = np.take_along_axis(scores, np.argsort(labels), axis=1)
    decision = model.decision_function(X)
    assert decision.shape == (N_ROWS,)
    np.testing.assert_allclose(decision, of_class[:, 1] - of_class[:, 0], atol=1e-4)
    np.testing.assert_array_equal(model.predict(X)[decision != 0], (decision > 0)[decision != 0])


@with_each_loss
def test_multilabel_predictions_reach_the_threshold(loss):
    X, labels = draw(31, 22, multilabel=True)
    model = classifier(X, labels, multilabel=True, loss=loss, epochs=20, random_state=0)
    assert model.multilabel_
    scores = model.decision_function(X)
    answer = model.predict(X)
    answer = answer.toarray() if hasattr(answer, "toarray") else answer
    assert answer.shape == scores.shape == (N_ROWS, 22)
    clear = np.abs(scores - model.threshold_) > 1e-4
    np.testing.assert_array_equal(answer[clear], (scores >= model.threshold_)[clear])
    assert 0 < answer.sum() < answer.size


def test_multilabel_probabilities_are_exponentials_of_scores():
    X, labels = draw(31, 22, multilabel=True)
    model = classifier(X, labels, multilabel=True, loss="logistic", random_state=0)
    scores = model.decision_function(X)
    np.testing.assert_allclose(model.predict_proba(X), np.exp(scores), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("bucket_size", [1, 4])
@pytest.mark.parametrize("several", [False, True], ids=["one label", "several"])
def test_label_weights_give_the_same_scores_in_every_method(several, bucket_size):
    rng = np.random.default_rng(0)
    n_labels, n_rows = 150, 900
    centers = rng.random((n_labels, 50)) < 0.1
    y = rng.integers(0, n_labels, n_rows)
    X = csr_array((centers[y] | (rng.random((n_rows, 50)) < 0.05)).astype(np.float32))
    if several:
        y = [sorted({int(a) // step for step in range(1, 8)}) for a in y]
    settings = {"width": 4, "n_trellises": 3, "label_weights": True, "bucket_size": bucket_size}
    model = LTLSClassifier(random_state=0, **settings).fit(X, y)
    every = model.decision_function(X)
    first = model.classes_[every.argmax(axis=1)]
    for k in (1, 10, 20, 60, n_labels):
        labels, scores = model.predict_topk(X, k)
        assert all(len(set(row)) == min(k, len(model.classes_)) for row in labels.tolist())
        own = np.take_along_axis(every, np.searchsorted(model.classes_, labels), axis=1)
        np.testing.assert_allclose(scores, own, rtol=1e-5, atol=1e-5)
        assert (np.diff(scores, axis=1) <= 0).all()
        np.testing.assert_array_equal(labels[:, 0], first)
        for ours, theirs in zip(model.predictor(k)(X), (labels, scores), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    if several:
        np.testing.assert_array_equal(model.predict(X).toarray(), every >= model.threshold_)
    else:
        np.testing.assert_array_equal(model.predict(X), first)
