"""Model files of every earlier version load with the same predictions.

Those of version 0.1 also say what training gave then: the same seeds give the same weights.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import problems
import pytest

from ltls import Checkpoint, LTLSClassifier, TextClassifier, load, presets
from ltls.core import _engine
from ltls.storage.compatibility import current_parameters
from tests.compat.write_archive import predictions

ARCHIVE = Path(__file__).parent / "v0.1"
MANIFEST = json.loads((ARCHIVE / "manifest.json").read_text())
MODELS = MANIFEST["models"]
# Those that `write_archive` has written.
LATER = sorted(path for path in Path(__file__).parent.glob("v*") if path != ARCHIVE)
MANIFESTS = {folder: json.loads((folder / "manifest.json").read_text()) for folder in LATER}


@pytest.mark.parametrize("mmap", [True, False], ids=["mapped", "read"])
@pytest.mark.parametrize(
    ("folder", "name"),
    [
        pytest.param(folder, name, id=f"{folder.name}-{name}")
        for folder in LATER
        for name in MANIFESTS[folder]["models"]
    ],
)
def test_a_file_of_a_later_version_predicts_as_it_did(folder, name, mmap):
    X, _ = problems.rows_of(MANIFESTS[folder]["models"][name]["problem"])
    found = predictions(load(folder / f"{name}.ltls", mmap=mmap, verify=True), X)
    expected = dict(np.load(folder / f"{name}.npz"))
    assert set(found) >= set(expected)
    np.testing.assert_array_equal(found["labels"], expected["labels"])
    np.testing.assert_array_equal(found["predicted"], expected["predicted"])
    if _engine.instruction_sets()[-1] == MANIFESTS[folder]["instruction_set"]:
        np.testing.assert_array_equal(found["scores"], expected["scores"])
    else:  # sums are rounded in another order
        np.testing.assert_allclose(found["scores"], expected["scores"], rtol=1e-5, atol=1e-5)
    if "proba" in expected:
        np.testing.assert_allclose(found["proba"], expected["proba"], atol=1e-5)


@pytest.mark.parametrize("folder", LATER, ids=lambda folder: folder.name)
def test_a_checkpoint_of_a_later_version_is_resumed(folder, tmp_path):
    X, y = problems.digits()
    path = shutil.copy(folder / "after_one_epoch.checkpoint", tmp_path)  # it is replaced
    model = LTLSClassifier(**MANIFESTS[folder]["checkpoint"])
    model.fit(X, y, checkpoint=Checkpoint(path, resume=True))
    expected = np.load(folder / "after_one_epoch.npz")["coef"]
    if _engine.instruction_sets()[-1] == MANIFESTS[folder]["instruction_set"]:
        np.testing.assert_array_equal(model.coef_, expected)
    else:
        np.testing.assert_allclose(model.coef_, expected, atol=0.05)


def test_the_archive_has_every_kind_of_section_and_codebook():
    models = [load(path).model_ for folder in LATER for path in folder.glob("*.ltls")]
    assert {type(book).__name__ for model in models for book in model.codebooks} == {
        "RandomCodebook",
        "TableCodebook",
        "BucketCodebook",
    }
    assert {str(model.weights.values.dtype) for model in models} == {"float32", "float16", "int8"}
    assert {model.target_format for model in models} >= {"single", "lists", "dense"}
    assert {model.loss.name for model in models} == {"softmax", "separation", "logistic"}
    for part in (
        "label_weights",
        "embedding",
        "propensity",
        "feature_map",
        "calibration",
        "reservoir",
        "standardizer",
        "squares",
        "trainable",
    ):
        assert any(getattr(model, part) for model in models), part
    curves = [model.calibration.curve for model in models if model.calibration]
    assert any(curve is None for curve in curves)
    assert any(curve is not None for curve in curves)


@pytest.mark.parametrize("name", MODELS)
def test_a_file_of_version_0_1_predicts_as_it_did(name):
    X, _ = problems.rows_of(MODELS[name]["problem"])
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
    how, X_y = MODELS[name]["how"], problems.rows_of(MODELS[name]["problem"])
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
