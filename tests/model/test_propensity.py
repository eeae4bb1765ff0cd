"""Ranking that prefers rare labels."""

import numpy as np
import pytest
import scipy.sparse as sp

import ltls
from ltls import LTLSClassifier, metrics
from ltls.model.propensity import PropensityReranker


def test_the_bonus_is_minus_the_logarithm_of_the_propensity():
    counts = np.array([100, 3, 0])
    reranker = PropensityReranker.of(0.5, counts, 200)
    expected = -0.5 * np.log(metrics.propensities_of(counts, 200))
    np.testing.assert_allclose(reranker.bonus, expected, rtol=1e-6)
    assert (np.diff(reranker.bonus) > 0).all()


def test_candidates_are_sorted_with_the_bonus_and_missing_ones_stay_last():
    reranker = PropensityReranker(np.array([0, 1, 5], np.float32))
    ids = np.array([[0, 1, -1], [2, 0, 1]])
    scores = np.array([[2, 1.5, -np.inf], [0, 4, 4]], np.float32)
    reranker.rerank(None, ids, scores, None)
    assert ids.tolist() == [[1, 0, -1], [2, 1, 0]]
    assert scores.tolist() == [[2.5, 2, -np.inf], [5, 5, 4]]


@pytest.fixture(scope="module")
def rows():
    """Rows with one to three labels, some of them rare, that their features tell."""
    rng = np.random.default_rng(0)
    frequency = 1 / np.arange(1, 81)
    Y = sp.lil_array((1200, 80), dtype=np.int8)
    for row in range(1200):
        Y[row, rng.choice(80, rng.integers(1, 4), False, frequency / frequency.sum())] = 1
    Y = Y.tocsr()
    noise = sp.random(1200, 300, 0.02, "csr", np.float32, rng)
    return sp.hstack([Y.astype(np.float32) * 0.7, noise]).tocsr(), Y


SETTINGS = {"width": 4, "n_trellises": 2, "epochs": 2, "random_state": 0}


@pytest.mark.parametrize("label_weights", [False, True])
def test_rare_labels_rank_higher_and_probabilities_stay(rows, label_weights, tmp_path):
    X, Y = rows
    settings = {**SETTINGS, "label_weights": label_weights}
    plain = LTLSClassifier(**settings).fit(X[:1000], Y[:1000])
    rare = LTLSClassifier(propensity=2.0, **settings).fit(X[:1000], Y[:1000])
    counts = np.asarray(Y[:1000].sum(axis=0)).ravel()
    of_plain, of_rare = (model.predict_topk(X[1000:], 3)[0] for model in (plain, rare))
    assert counts[of_rare].mean() < counts[of_plain].mean()
    np.testing.assert_array_equal(rare.predict_proba(X[:9]), plain.predict_proba(X[:9]))
    best = rare.decision_function(X[1000:]).argmax(axis=1)
    np.testing.assert_array_equal(best, of_rare[:, 0])
    rare.save(tmp_path / "model.ltls", dtype="float32")
    loaded = ltls.load(tmp_path / "model.ltls")
    np.testing.assert_array_equal(loaded.predict_topk(X[1000:], 3)[0], of_rare)
    assert loaded.model_.propensity == 2.0


@pytest.mark.parametrize("label_weights", [False, True])
def test_auto_does_not_lose_precision(rows, label_weights):
    X, Y = rows
    settings = {**SETTINGS, "label_weights": label_weights}
    plain = LTLSClassifier(**settings).fit(X[:1000], Y[:1000])
    chosen = LTLSClassifier(propensity="auto", **settings).fit(X[:1000], Y[:1000])
    assert 0 <= chosen.model_.propensity <= 0.8
    precision = [
        metrics.precision_at_k(Y[1000:], model.predict_topk(X[1000:], 5)[0], 1)
        for model in (plain, chosen)
    ]
    assert precision[1] >= precision[0] - 0.03


def test_a_negative_strength_is_an_error(rows):
    X, Y = rows
    with pytest.raises(ValueError, match="propensity"):
        LTLSClassifier(propensity=-1.0).fit(X, Y)
