"""Calibration turns scores into probabilities that increase with them and add up."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import random as random_matrix
from sklearn.isotonic import IsotonicRegression
from small_parts import section_of

import ltls
from ltls import LTLSClassifier
from ltls.metrics import calibration_error
from ltls.parts.calibration import (
    Calibrator,
    ScoreCurve,
    _isotonic,
    _pairs,
    _scale,
    best_threshold,
)

N_LABELS = 6


def drawn(n_rows, scale, seed=0, multilabel=False, n_labels=N_LABELS):
    """Scores, and labels that are true as often as a softmax or σ of the scaled scores says."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n_rows, n_labels)).astype(np.float32)
    if multilabel:
        return scores, rng.random(scores.shape) < 1 / (1 + np.exp(2 - scale * scores))
    weights = np.exp(scale * scores)
    proba = weights / weights.sum(axis=1, keepdims=True)
    true = (rng.random(n_rows)[:, None] > np.cumsum(proba, axis=1)).sum(axis=1)
    return scores, np.arange(n_labels) == true[:, None]


@st.composite
def score_tables(draw):
    """Tables of scores of which some are equal, large or no candidates, and of true labels."""
    shape = (draw(st.integers(1, 40)), draw(st.integers(1, 8)))
    numbers = st.integers(-3, 3) | st.floats(-50, 10, width=32) | st.sampled_from([-1e4, 1e4])
    scores = draw(arrays(np.float32, shape, elements=numbers.map(np.float32)))
    hits = draw(arrays(bool, shape))
    times = draw(st.sampled_from([1, 100]))  # enough true labels for an isotonic regression
    scores, hits = np.tile(scores, (times, 1)), np.tile(hits, (times, 1))
    some = scores[: shape[0]]  # to mask all of them would take hypothesis long to draw
    some[draw(arrays(bool, shape, elements=st.booleans(), fill=st.just(False)))] = -np.inf
    scores[:, 0] = np.where(np.isinf(scores[:, 0]), 0, scores[:, 0])
    return scores, hits


@settings(max_examples=150)
@given(score_tables(), st.booleans())
def test_probabilities_increase_with_scores_and_add_up(table, multilabel):
    scores, hits = table
    if not multilabel:
        hits &= np.cumsum(hits, axis=1) == 1
    calibration = Calibrator.fit(scores, hits, multilabel)
    candidates = hits & (scores > -np.inf)
    if calibration is None:
        assert not candidates.any() or candidates.all()
        calibration = Calibrator(multilabel)
    proba = calibration(scores)
    assert proba.dtype == np.float32
    assert (proba >= 0).all()
    assert (proba <= 1).all()
    assert (proba[scores == -np.inf] == 0).all()
    if not multilabel:
        np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-5)
    for own, theirs in (
        [(scores.ravel(), proba.ravel())] if multilabel else zip(scores, proba, strict=True)
    ):
        assert (np.diff(theirs[np.argsort(own, kind="stable")]) >= 0).all()
    calibration = replace(calibration, threshold=0.0 if multilabel else None)
    section = section_of(*calibration.state())
    restored = Calibrator.from_state(section, multilabel)
    section.check_all_taken()
    np.testing.assert_array_equal(restored(scores), proba)


def test_labels_remain_possible_if_the_best_one_of_every_row_was_true():
    scores = np.tile(np.array([1, 0, -3], np.float32), (40, 1))
    proba = Calibrator.fit(scores, scores == 1, False)(scores)
    assert 0.95 < proba[0, 0] < 1
    assert proba.min() > 1e-9


@pytest.mark.parametrize("n_rows", [300, 4000], ids=["few rows", "many rows"])
@pytest.mark.parametrize("multilabel", [False, True], ids=["one label", "several labels"])
@pytest.mark.parametrize("scale", [0.2, 1, 5])
def test_labels_are_true_as_often_as_probabilities_say(n_rows, multilabel, scale):
    calibration = Calibrator.fit(*drawn(n_rows, scale, 0, multilabel), multilabel)
    assert calibration.multilabel == multilabel
    scores, hits = drawn(4000, scale, 1, multilabel)
    assert calibration_error(hits, calibration(scores)) < 0.03


def test_the_scale_is_the_one_that_made_the_labels():
    assert _scale(*drawn(20_000, 2.5)) == pytest.approx(2.5, rel=0.05)


def test_of_few_true_labels_one_number_is_learned():
    calibration = Calibrator.fit(*drawn(399, 2.0), multilabel=False)
    assert calibration.curve is None
    assert calibration.scale == pytest.approx(2, rel=0.2)


def assert_nearly_constant(proba, wanted):
    np.testing.assert_allclose(np.quantile(proba, [0, 0.999]), wanted, rtol=0.5)
    assert proba.max() < 4 * wanted


@pytest.mark.parametrize("n_labels", [100, 500])
def test_no_signal(n_labels):
    """Scores that tell nothing give every label the same probability."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(3000, n_labels)).astype(np.float32)
    hits = np.arange(n_labels) == rng.integers(0, n_labels, 3000)[:, None]
    proba = Calibrator.fit(scores, hits, False)(scores)
    assert_nearly_constant(proba, 1 / n_labels)
    proba = Calibrator.fit(scores, hits, True)(scores)
    assert proba.mean() == pytest.approx(1 / n_labels, rel=0.1)
    assert np.quantile(proba, 0.99) < 2.5 / n_labels


def test_random_rows_of_random_labels_are_fitted_with_the_defaults():
    rng = np.random.default_rng(0)
    X, y = rng.random((60_000, 5)), rng.integers(0, 100, 60_000)
    proba = LTLSClassifier(random_state=0).fit(X, y).predict_proba(X[:200])
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-5)
    assert_nearly_constant(proba, 0.01)


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("n_rows", [50, 1000])
def test_constant_scores_have_the_frequency_of_true_labels(multilabel, n_rows):
    scores = np.full((n_rows, 4), -2, np.float32)
    hits = np.arange(4) == np.arange(n_rows)[:, None] % 4
    proba = Calibrator.fit(scores, hits, multilabel)(scores)
    np.testing.assert_allclose(proba, 0.25, rtol=1e-4)


def test_all_or_no_labels_that_are_true_tell_nothing():
    scores = np.zeros((5, 2), np.float32)
    for multilabel in (False, True):
        assert Calibrator.fit(scores, np.zeros((5, 2), bool), multilabel) is None
        assert Calibrator.fit(scores, np.ones((5, 2), bool), multilabel) is None
        gone = np.full((5, 2), -np.inf, np.float32)
        assert Calibrator.fit(gone, np.eye(5, 2, dtype=bool), multilabel) is None


# The curve


def test_the_curve_goes_through_the_steps_of_an_isotonic_regression():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=4000)
    hits = rng.random(4000) < 1 / (1 + np.exp(-3 * scores))
    curve = _isotonic(scores, hits, np.ones(4000), 1e-6)
    found = curve(scores.astype(np.float32))
    assert np.abs(found - IsotonicRegression().fit(scores, hits).predict(scores)).mean() < 0.02
    assert found.mean() == pytest.approx(hits.mean(), abs=0.01)


def test_curves_increase_everywhere():
    curve = ScoreCurve(np.float32([-1, 0, 2]), np.float32([0.1, 0.4, 0.8]))
    at = np.linspace(-20, 12, 500).astype(np.float32)
    assert (np.diff(curve(at)) > 0).all()
    assert 0 < curve(at)[0] < curve(at)[-1] < 1
    assert curve(np.float32([1]))[0] == pytest.approx(0.6)
    assert curve(np.float32([-2]))[0] == pytest.approx(0.1 / np.e, rel=1e-5)
    assert curve(np.float32([3]))[0] == pytest.approx(1 - 0.2 / np.e, rel=1e-5)


def test_a_sample_of_many_labels_has_the_weight_of_all():
    scores = np.random.default_rng(0).normal(size=(50, 1000)).astype(np.float32)
    flat, hits, weights = _pairs(scores, scores > 0)
    assert weights.sum() == pytest.approx(scores.size, rel=0.01)
    assert (weights * hits).sum() == pytest.approx((scores > 0).sum(), rel=0.02)
    assert len(flat) < scores.size / 4


def test_a_softmax_that_overflows_is_still_normalized():
    proba = Calibrator(False, 100.0)(np.float32([[0, -50, 1e4], [1, 1, 1]]))
    np.testing.assert_allclose(proba, [[0, 0, 1], [1 / 3] * 3], atol=1e-6)
    np.testing.assert_allclose(
        Calibrator(True, 1.0)(np.float32([[-1, 5, 0]])), [[np.exp(-1), 1, 1]], rtol=1e-6
    )


# In a model


@pytest.fixture(scope="module")
def one_label(digits):
    """A model of one label per row, other rows, and their labels."""
    X, y = digits
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order], y[order]
    model = LTLSClassifier(random_state=0).fit(X[:1300], y[:1300])
    return model, (X[:1300], y[:1300]), X[1300:], y[1300:]


@pytest.fixture(scope="module")
def several_labels():
    rng = np.random.default_rng(0)
    X = random_matrix(2400, 60, 0.1, "csr", random_state=0)
    logits = 6 * X @ rng.normal(size=(60, 12)) - 2
    Y = (rng.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(int)
    model = LTLSClassifier(random_state=0).fit(X[:1800], Y[:1800])
    return model, (X[:1800], Y[:1800]), X[1800:], Y[1800:]


def test_one_label_per_row_is_calibrated(one_label):
    model, train, X, y = one_label
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(model.classes_[proba.argmax(axis=1)], model.predict(X))
    plain = LTLSClassifier(random_state=0, calibration=False).fit(*train)
    assert (plain.model_.calibration.scale, plain.model_.calibration.curve) == (1.0, None)
    losses = [
        -np.log(each.predict_proba(X)[np.arange(len(y)), y]).mean() for each in (model, plain)
    ]
    assert losses[0] < losses[1]


def test_several_labels_per_row_are_calibrated(several_labels):
    model, _, X, Y = several_labels
    assert calibration_error(Y > 0, model.predict_proba(X)) < 0.04
    best, proba = model.predict_topk(X, 3, proba=True)
    labels, scores = model.predict_topk(X, 3)
    np.testing.assert_array_equal(best, labels)
    everything = model.predict_proba(X)
    np.testing.assert_allclose(np.take_along_axis(everything, best, axis=1), proba, rtol=1e-5)
    order = np.argsort(scores, axis=None)
    assert (np.diff(proba.ravel()[order]) >= 0).all()  # one function of the score


@pytest.mark.parametrize("case", ["one_label", "several_labels"])
def test_files_hold_the_calibration_and_partial_fit_keeps_it(case, request, tmp_path):
    model, _, X, y = request.getfixturevalue(case)
    model.save(tmp_path / "model.ltls")
    loaded = ltls.load(tmp_path / "model.ltls")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    calibration = loaded.model_.calibration
    loaded.partial_fit(X[:5], y[:5])
    kept = loaded.model_.calibration
    assert (kept.scale, kept.curve, kept.missed) == (
        calibration.scale, calibration.curve, calibration.missed,
    )  # fmt: skip


def test_few_rows_take_the_mean_score_of_the_trellises():
    X = random_matrix(900, 60, 0.1, "csr", random_state=0)
    model = LTLSClassifier(random_state=0).set_params(trellises__n_trellises=3)
    model.fit(X, np.arange(900) % 9)
    calibration = model.model_.calibration
    assert (calibration.scale, calibration.curve) == (1 / 3, None)
    best = model.predict_proba(X).argmax(axis=1)
    np.testing.assert_array_equal(model.classes_[best], model.predict(X))


# The threshold


@given(score_tables(), st.integers(0, 50))
def test_the_best_threshold_has_the_best_f1_of_all(table, n_missed):
    scores, hits = table
    n_true = int(hits.sum()) + n_missed

    def f1(threshold):
        predicted = scores >= threshold
        return 2 * (predicted & hits).sum() / max(predicted.sum() + n_true, 1)

    found = best_threshold(scores, hits, n_true)
    assert f1(found) == pytest.approx(max(f1(each) for each in np.unique(scores[scores > -np.inf])))


def test_no_candidates_have_a_threshold_of_0():
    none = np.full((2, 3), -np.inf, np.float32)
    assert best_threshold(none, np.ones((2, 3), bool), 2) == 0


# Files


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": np.float32([0, 0])}, "values that increase"),
        ({"scores": np.float32([0, np.inf])}, "not finite"),
        ({"scores": np.float64([0, 1])}, "must be float32"),
        ({"scores": np.float32([0])}, "must have shape"),
        ({"scores": np.float32([]), "probabilities": np.float32([])}, "must not decrease"),
        ({"probabilities": np.float32([0.5, 0.2])}, "must not decrease"),
        ({"probabilities": np.float32([0, 0.2])}, "at least 1e-12"),
        ({"probabilities": np.float32([0.2, 1])}, "at most 0.99"),
        ({"scores": None}, "'scores' is missing"),
        ({"scale": 0}, "scale must be a finite number"),
        ({"scale": np.inf}, "scale must be a finite number"),
        ({"scale": "1"}, "scale must be a finite number"),
    ],
)
def test_states_that_are_not_as_declared_are_refused(changes, message):
    curve = ScoreCurve(np.float32([-1, 1]), np.float32([0.2, 0.8]))
    described, tensors = Calibrator(True, 1.0, curve, threshold=0.0).state()
    Calibrator.from_state(section_of(described, tensors), True)
    described |= {name: value for name, value in changes.items() if name == "scale"}
    tensors |= {name: value for name, value in changes.items() if name != "scale"}
    present = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    with pytest.raises(ValueError, match=message):
        Calibrator.from_state(section_of(described, present), True)
