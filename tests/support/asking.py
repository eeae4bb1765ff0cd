"""Ask a model everything that it can answer."""

import numpy as np
import pytest

import ltls


def ask_everything(model, X, folder, tolerance=1e-2):
    """Call every method; the answers are finite and agree, explanations up to a tolerance."""
    n_rows, n_labels = X.shape[0] if hasattr(X, "shape") else len(X), len(model.classes_)
    k = min(3, n_labels)
    labels, scores = model.predict_topk(X, 3)
    assert labels.shape == scores.shape == (n_rows, k)
    assert np.isfinite(scores).all()
    predicted = model.predict(X)
    assert predicted.shape[0] == n_rows
    if not model.multilabel_:
        np.testing.assert_array_equal(predicted, labels[:, 0])
    some = X[:40]
    probabilistic = model.model_.probabilistic
    if probabilistic:
        probabilities = model.predict_proba(some)
        assert ((probabilities >= 0) & (probabilities <= 1)).all()
        if not model.multilabel_:
            np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-3)
    assert np.isfinite(model.decision_function(some)).all()
    allowed = model.classes_[: max(n_labels // 2, 1)].tolist()
    among, _ = model.predict_topk(some, 2, proba=probabilistic, among=allowed)
    assert set(among.ravel().tolist()) <= set(allowed)
    [explained] = model.explain(X[:1], k=2)
    assert explained[0].score == pytest.approx(scores[0, 0], rel=1e-3, abs=tolerance)
    model.save(folder / "model.ltls")
    loaded = ltls.load(folder / "model.ltls", verify=True)
    np.testing.assert_array_equal(loaded.predict_topk(X, 3)[1], scores)
    target = model.classes_[[0, -1]][:n_rows].tolist()
    if loaded.class_weight == "balanced":  # needs all rows at once
        loaded.set_params(class_weight=None)
    loaded.partial_fit(X[:2], [[label] for label in target] if model.multilabel_ else target)
    assert np.isfinite(loaded.predict_topk(some, 3)[1]).all()
