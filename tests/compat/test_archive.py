"""Model files of every earlier version load with the same predictions.

Those of version 0.1 also say what training gave then: the same seeds give the same weights.
"""

import json
from pathlib import Path

import numpy as np
import problems
import pytest

from ltls import LTLSClassifier, TextClassifier, load, presets
from ltls.core import _engine
from ltls.storage.compatibility import current_parameters

ARCHIVE = Path(__file__).parent / "v0.1"
MANIFEST = json.loads((ARCHIVE / "manifest.json").read_text())
MODELS = MANIFEST["models"]


def rows_of(problem):
    """Return X and y of one of the problems."""
    if problem == "indicator":
        X, lists = problems.sparse(multilabel=True)
        return X, np.array([[f"label {c}" in row for c in range(40)] for row in lists], int)
    if problem == "sparse_multilabel":
        return problems.sparse(multilabel=True)
    return getattr(problems, problem)()


@pytest.mark.parametrize("name", MODELS)
def test_a_file_of_version_0_1_predicts_as_it_did(name):
    X, _ = rows_of(MODELS[name]["problem"])
    estimator = load(ARCHIVE / f"{name}.ltls", verify=True)
    expected = np.load(ARCHIVE / f"{name}.npz")
    labels, scores = estimator.predict_topk(X[:50], 3)
    np.testing.assert_array_equal(labels.astype(str), expected["labels"])
    if _engine.instruction_sets()[-1] == MANIFEST["instruction_set"]:
        np.testing.assert_array_equal(scores, expected["scores"])
    else:  # sums are rounded in another order
        np.testing.assert_allclose(scores, expected["scores"], rtol=1e-5, atol=1e-5)
    if "predicted" in expected:
        predicted = estimator.predict(X[:50])
        dense = predicted.toarray() if hasattr(predicted, "toarray") else predicted
        np.testing.assert_array_equal(dense, expected["predicted"])
    if "proba" in expected:
        np.testing.assert_allclose(estimator.predict_proba(X[:50]), expected["proba"], atol=1e-5)


def all_weights(model):
    """Return the weights of all features, whether they occur in training or not."""
    weights = model.weights
    rows = weights.dense()
    return np.vstack([model.expand(rows[: weights.n_features]), rows[weights.n_features :]])


def trained(name):
    """Train the model of that name again."""
    how, X_y = MODELS[name]["how"], rows_of(MODELS[name]["problem"])
    parameters = current_parameters(MODELS[name]["parameters"])
    if how != "paper":  # version 0.1 had no buckets, no label weights and no replay
        parameters |= {"bucket_size": 1, "label_weights": False, "replay_size": 0}
    batches = [tuple(part[i : i + 150] for part in X_y) for i in range(0, len(X_y[1]), 150)]
    if how == "paper":
        return presets.paper(**parameters).fit(*X_y)
    if how == "text":
        return TextClassifier(**parameters).fit(*X_y)
    if how == "fit_stream":
        return LTLSClassifier(**parameters).fit_stream(batches)
    if how == "partial_fit":
        estimator = LTLSClassifier(**parameters)
        for batch in batches:
            estimator.partial_fit(*batch)
        return estimator
    return LTLSClassifier(**parameters).fit(*X_y)


@pytest.mark.parametrize("name", MODELS)
def test_the_same_seed_gives_the_weights_of_version_0_1(name, tmp_path):
    trained(name).save(tmp_path / "again.ltls", MODELS[name]["dtype"] or "float32")
    old, new = load(ARCHIVE / f"{name}.ltls").model_, load(tmp_path / "again.ltls").model_
    assert new.labels.values == old.labels.values
    every = np.arange(len(old.labels))
    for ours, theirs in zip(new.codebooks, old.codebooks, strict=True):
        np.testing.assert_array_equal(ours.path_of(every), theirs.path_of(every))
    if _engine.instruction_sets()[-1] == MANIFEST["instruction_set"]:
        np.testing.assert_array_equal(all_weights(new), all_weights(old))
        assert new.threshold == old.threshold
        assert (new.embedding is None) == (old.embedding is None)
        if old.embedding is not None:
            assert new.embedding.weight == old.embedding.weight
            np.testing.assert_array_equal(new.embedding.labels, old.embedding.labels)
    else:  # sums are rounded in another order
        np.testing.assert_allclose(all_weights(new), all_weights(old), atol=0.05)
