"""The calibration of probabilities, fitted on held-out rows."""

import numpy as np
import pytest
from scipy.sparse import random as random_matrix
from sklearn.datasets import load_digits
from sklearn.isotonic import IsotonicRegression

import ltls
from ltls import LTLSClassifier
from ltls.metrics import calibration_error
from ltls.model.calibration import Calibration, ScoreCurve
from ltls.training.calibration import _isotonic, _pairs, _scale


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order] / 16, y[order]


@pytest.fixture(scope="module")
def model(digits):
    X, y = digits
    return LTLSClassifier(random_state=0).fit(X[:1300], y[:1300])


@pytest.fixture(scope="module")
def several():
    """A multi-label model, and rows with the labels that they have."""
    rng = np.random.default_rng(0)
    X = random_matrix(2400, 60, 0.1, "csr", random_state=0)
    logits = 6 * X @ rng.normal(size=(60, 12)) - 2
    Y = (rng.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(int)
    return LTLSClassifier(random_state=0).fit(X[:1800], Y[:1800]), X[1800:], Y[1800:]


def test_one_label_per_row_is_calibrated(digits, model):
    X, y = digits
    proba = model.predict_proba(X[1300:])
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-5)
    best = model.predict(X[1300:])
    np.testing.assert_array_equal(model.classes_[proba.argmax(axis=1)], best)
    plain = LTLSClassifier(random_state=0, calibrate=False).fit(X[:1300], y[:1300])
    assert plain.model_.calibration is None

    def loss(estimator):
        return -np.log(estimator.predict_proba(X[1300:])[np.arange(len(y) - 1300), y[1300:]]).mean()

    assert loss(model) < loss(plain)


def test_several_labels_per_row_are_calibrated(several):
    model, X, Y = several
    assert calibration_error(Y > 0, model.predict_proba(X)) < 0.04
    best, proba = model.predict_topk(X, 3, proba=True)
    labels, scores = model.predict_topk(X, 3)
    assert (np.diff(proba, axis=1) <= 0).all()
    np.testing.assert_array_equal(best, labels)
    everything = model.predict_proba(X)
    np.testing.assert_allclose(np.take_along_axis(everything, best, axis=1), proba, rtol=1e-5)
    order = np.argsort(scores, axis=None)
    assert (np.diff(proba.ravel()[order]) >= 0).all()  # one function of the score


def test_files_hold_the_calibration(digits, model, several, tmp_path):
    X, _ = digits
    for number, (each, rows) in enumerate(((model, X[:50]), several[:2])):
        path = tmp_path / f"{number}.ltls"
        each.save(path, dtype="float32")
        loaded = ltls.load(path)
        np.testing.assert_allclose(
            loaded.predict_proba(rows), each.predict_proba(rows), rtol=1e-4, atol=1e-6
        )


def test_partial_fit_keeps_the_calibration(several):
    model, X, Y = several
    calibration = model.model_.calibration
    assert calibration is not None
    model.partial_fit(X[:5], Y[:5])
    assert model.model_.calibration is calibration


def test_few_rows_take_the_mean_score_of_the_trellises(digits):
    X, y = digits
    model = LTLSClassifier(n_trellises=3, epochs=1, random_state=0).fit(X[:900], y[:900])
    calibration = model.model_.calibration
    assert (calibration.scale, calibration.curve) == (1 / len(model.codebooks_), None)
    best = model.predict_proba(X[900:]).argmax(axis=1)
    np.testing.assert_array_equal(model.classes_[best], model.predict(X[900:]))


def test_losses_without_probabilities_have_no_calibration(digits):
    X, y = digits
    model = LTLSClassifier(epochs=1, random_state=0, loss="separation").fit(X[:1300], y[:1300])
    assert model.model_.calibration is None


def test_the_scale_is_the_one_that_made_the_labels():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(20_000, 6)).astype(np.float32)
    weights = np.exp(2.5 * scores)
    proba = weights / weights.sum(axis=1, keepdims=True)
    drawn = (rng.random(len(proba))[:, None] > np.cumsum(proba, axis=1)).sum(axis=1)
    hits = np.arange(6) == drawn[:, None]
    assert _scale(scores, hits, 1.0) == pytest.approx(2.5, rel=0.05)


def test_the_curve_goes_through_the_steps_of_an_isotonic_regression():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=4000)
    hits = rng.random(4000) < 1 / (1 + np.exp(-3 * scores))
    curve = _isotonic(scores, hits, np.ones(4000), 1e-6)
    steps = IsotonicRegression().fit(scores, hits).predict(scores)
    assert np.abs(curve(scores.astype(np.float32)) - steps).mean() < 0.02
    assert curve(scores.astype(np.float32)).mean() == pytest.approx(hits.mean(), abs=0.01)


def test_curves_increase_everywhere():
    curve = ScoreCurve(np.float32([-1, 0, 2]), np.float32([0.1, 0.4, 0.8]))
    at = np.linspace(-20, 12, 500).astype(np.float32)
    assert (np.diff(curve(at)) > 0).all()
    assert 0 < curve(at)[0] < curve(at)[-1] < 1
    assert curve(np.float32([1]))[0] == pytest.approx(0.6)


def test_a_sample_of_many_labels_has_the_weight_of_all():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(50, 1000)).astype(np.float32)
    flat, hits, weights = _pairs(scores, scores > 0)
    assert weights.sum() == pytest.approx(scores.size, rel=0.01)
    assert (weights * hits).sum() == pytest.approx((scores > 0).sum(), rel=0.02)
    assert len(flat) < scores.size / 4


def test_a_softmax_that_overflows_is_still_normalized():
    proba = Calibration(False, 100.0)(np.float32([[0, -50, 1e4], [1, 1, 1]]))
    np.testing.assert_allclose(proba, [[0, 0, 1], [1 / 3] * 3], atol=1e-6)
