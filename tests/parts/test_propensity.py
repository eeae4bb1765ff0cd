"""Propensities: a bonus for labels that are rarely recorded."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

import ltls
from ltls import LTLSClassifier, metrics
from ltls.parts.propensity import PropensityPart, propensities_of
from ltls.settings import Propensity, Trellises


def test_propensities():
    counts = np.array([100, 3, 0])
    part = PropensityPart.of(counts, 200)
    c = (np.log(200) - 1) * 2.5**0.55
    wanted = np.log(1 + c * (counts + 1.5) ** -0.55)
    np.testing.assert_allclose(part.bonus, wanted, rtol=1e-6)
    np.testing.assert_allclose(propensities_of(counts, 200), np.exp(-wanted), rtol=1e-6)
    ids = np.array([[2, -1], [0, 1]])
    np.testing.assert_allclose(
        part.score(None, ids, None), [[wanted[2], 0], [wanted[0], wanted[1]]], rtol=1e-6
    )
    context = SimpleNamespace(counts=np.array([5, 5, 5, 5]), n_rows=20)
    for other in (part.learn(context), PropensityPart.fit(None, context)):
        np.testing.assert_array_equal(other.bonus, PropensityPart.of(context.counts, 20).bonus)
    assert not PropensityPart.of(counts, 0).bonus.any()  # nothing is known


# In a model


@pytest.fixture(scope="module")
def rows():
    """Rows with one to three labels, some of them rare, that their features tell."""
    rng = np.random.default_rng(0)
    frequency = 1 / np.arange(1, 81)
    Y = sp.lil_array((1200, 80), dtype=np.int8)
    for row in range(1200):
        Y[row, rng.choice(80, rng.integers(1, 4), False, frequency / frequency.sum())] = 1
    noise = sp.random(1200, 300, 0.02, "csr", np.float32, rng)
    return sp.hstack([Y.tocsr().astype(np.float32) * 0.7, noise]).tocsr(), Y.tocsr()


def fitted(rows, label_weights, propensity):
    X, Y = rows
    trellises = Trellises(width=4, n_trellises=2, epochs=2)
    model = LTLSClassifier(
        trellises=trellises, label_weights=label_weights, propensity=propensity, prototypes=False,
        neighbours=False, random_state=0,
    )  # fmt: skip
    return model.fit(X[:1000], Y[:1000])


@pytest.mark.parametrize("label_weights", [False, True])
def test_rare_labels_rank_higher_and_probabilities_stay(rows, label_weights, tmp_path):
    X, Y = rows
    plain = fitted(rows, label_weights, False)
    rare = fitted(rows, label_weights, Propensity(strength=2.0))
    counts = np.asarray(Y[:1000].sum(axis=0)).ravel()
    of_plain, of_rare = (model.predict_topk(X[1000:], 3)[0] for model in (plain, rare))
    assert counts[of_rare].mean() < counts[of_plain].mean()
    np.testing.assert_array_equal(rare.predict_proba(X[:9]), plain.predict_proba(X[:9]))
    best = rare.decision_function(X[1000:]).argmax(axis=1)
    np.testing.assert_array_equal(best, of_rare[:, 0])
    rare.save(tmp_path / "model.ltls")
    loaded = ltls.load(tmp_path / "model.ltls")
    np.testing.assert_array_equal(loaded.predict_topk(X[1000:], 3)[0], of_rare)
    assert loaded.model_.weights[-1] == 2.0


@pytest.mark.parametrize("label_weights", [False, True])
def test_auto_does_not_lose_precision(rows, label_weights):
    X, Y = rows
    precision = [
        metrics.precision_at_k(
            Y[1000:], fitted(rows, label_weights, each).predict_topk(X[1000:], 5)[0], 1
        )
        for each in (False, True)
    ]
    assert precision[1] >= precision[0] - 0.03
