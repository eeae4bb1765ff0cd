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

from ltls import LTLSClassifier, RandomCodebook
from ltls.settings import Trellises


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


def test_probabilities_depend_on_the_loss(trained):
    model, reference, X = trained
    if model.trellises.loss == "separation":
        assert not hasattr(model, "predict_proba")
        return
    expected = np.exp(reference.label_scores(X).astype(float))
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-4)


def test_path_log_proba_is_the_score_of_the_path_of_a_label():
    X, labels = draw(2, 22)
    model = classifier(X, labels, loss="softmax")
    y = as_target(labels, multilabel=False)
    expected = model.decision_function(X)[np.arange(N_ROWS), y]
    np.testing.assert_allclose(model.path_log_proba(X, y), expected, atol=1e-4)
    every = np.array([model.path_log_proba(X, np.full(N_ROWS, c)) for c in range(22)])
    np.testing.assert_allclose(np.exp(every).sum(axis=0), 1, atol=1e-5)
    np.testing.assert_allclose(np.exp(every).T, model.predict_proba(X), atol=1e-5)
    for ask in (model.log_proba, model.path_log_proba):
        with pytest.raises(ValueError, match="labels in classes_, got 22"):
            ask(X[:1], [22])
        with pytest.raises(ValueError, match="one label for each of the 100 rows of X, got 2"):
            ask(X, [1, 2])
        with pytest.raises(ValueError, match="got several labels per row"):
            ask(X[:1], [[1]])


@pytest.mark.parametrize("n_trellises", [1, 3])
def test_the_mass_of_free_paths_is_that_of_labels_not_seen_yet(digits, n_trellises):
    X, y = digits
    model = LTLSClassifier(trellises=Trellises(n_trellises=n_trellises), random_state=0)
    model.partial_fit(X[y < 3], y[y < 3])
    paths, free = np.arange(model.trellis_.n_classes), 0
    assert len(paths) > 3
    for h, book in zip(
        np.split(model.edge_scores(X[:50]), n_trellises, axis=1), model.codebooks_, strict=True
    ):
        scores = model.trellis_.score(h, np.tile(paths, (50, 1)))
        every = np.exp(scores - model.trellis_.log_partition(h)[:, None])
        np.testing.assert_allclose(every.sum(axis=1), 1, rtol=1e-4)
        free = free + every[:, np.setdiff1d(paths, book.path_of(np.arange(3)))].sum(axis=1)
    known = [model.path_log_proba(X[:50], np.full(50, label)) for label in model.classes_]
    np.testing.assert_allclose(1 - np.exp(known).sum(axis=0), free / n_trellises, atol=1e-4)


def test_path_log_proba_enumerates_no_paths():
    X, y = np.eye(4, dtype=np.float32), list("abcd")
    given = Trellises(assignment=RandomCodebook(2**50), epochs=50)
    model = LTLSClassifier(trellises=given, calibration=False, random_state=0).fit(X, y)
    assert model.trellis_.n_classes == 2**50
    own, other = model.path_log_proba(X, y), model.path_log_proba(X, y[::-1])
    assert (own > other).all()
    assert (np.exp(own) + np.exp(other) < 1).all()


@pytest.mark.parametrize("calibrated", [True, False])
def test_log_proba_is_that_of_predict_proba_and_not_of_paths(digits, calibrated):
    X, y = digits
    given = Trellises(width=4, n_trellises=2)
    model = LTLSClassifier(trellises=given, calibration=calibrated, random_state=0).fit(X, y)
    every = model.predict_proba(X[:50])
    found = model.log_proba(X[:50], y[:50])
    np.testing.assert_allclose(np.exp(found), every[np.arange(50), y[:50]], rtol=1e-5)
    assert np.abs(found - model.path_log_proba(X[:50], y[:50])).max() > 1e-3


@pytest.mark.parametrize(
    "given", [{"views": True}, {"trellises": Trellises(loss="logistic")}], ids=str
)
def test_paths_of_clusters_or_independent_edges_have_no_probabilities(digits, given):
    model = LTLSClassifier(random_state=0, **given).fit(*digits)
    with pytest.raises(AttributeError, match="loss='softmax': fit with views=False"):
        model.path_log_proba(digits[0][:2], [1, 2])


@with_each_loss
def test_decision_function_of_two_classes_is_one_difference(loss):
    X, labels = draw(0, 2)
    model = classifier(X, labels, loss=loss)
    labels, scores = model.predict_topk(X, 2)
    of_class = np.take_along_axis(scores, np.argsort(labels), axis=1)
    decision = model.decision_function(X)
    assert decision.shape == (N_ROWS,)
    np.testing.assert_allclose(decision, of_class[:, 1] - of_class[:, 0], atol=1e-4)
    np.testing.assert_array_equal(model.predict(X)[decision != 0], (decision > 0)[decision != 0])


def test_multilabel_probabilities_are_exponentials_of_scores():
    X, labels = draw(31, 22, multilabel=True)
    model = classifier(X, labels, multilabel=True, loss="logistic")
    scores = model.decision_function(X)
    np.testing.assert_allclose(model.predict_proba(X), np.exp(scores), rtol=1e-4, atol=1e-7)
