"""Density: pruned models in every method of the estimators, and how the fraction is chosen."""

import numpy as np
import pytest
import scipy.sparse as sp

import ltls
from ltls import LTLSClassifier, ModelFileError
from ltls.linear.weights import PrunedWeights, Weights
from ltls.model.examples import Examples
from ltls.storage.model_file import MODEL, describe
from ltls.storage.tensor_file import TensorFile, write
from ltls.training.auto import DatasetSize, plan_for
from ltls.training.config import TrainConfig
from ltls.training.pruning import choose_density

SMALL = {"width": 4, "n_trellises": 2, "embedding_dim": 0, "epochs": 4, "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    """Rows of three own features per class, and noise."""
    rng = np.random.default_rng(0)
    y = rng.integers(30, size=1200)
    own = np.repeat(np.arange(1200), 3), (3 * y[:, None] + np.arange(3)).ravel()
    X = sp.csr_array((np.ones(3600, np.float32), own), shape=(1200, 400)).tolil()
    noise = rng.integers(90, 400, (1200, 5))
    for row, columns in enumerate(noise):
        X[row, columns] = 0.5
    return sp.csr_array(X), y


def test_a_pruned_model_is_as_accurate_and_keeps_that_fraction(rows):
    X, y = rows
    model = LTLSClassifier(density=0.1, **SMALL).fit(X[:1000], y[:1000])
    weights = model.model_.weights
    assert isinstance(weights, PrunedWeights)
    assert len(weights.values) == pytest.approx(0.1 * model.coef_.size, rel=0.1)
    assert np.count_nonzero(model.coef_) + np.count_nonzero(model.intercept_) <= len(weights.values)
    whole = LTLSClassifier(density=1, **SMALL).fit(X[:1000], y[:1000])
    assert isinstance(whole.model_.weights, Weights)
    assert model.score(X[1000:], y[1000:]) >= whole.score(X[1000:], y[1000:]) - 0.02


def test_a_file_has_the_pruned_weights_and_float32_has_all(rows, tmp_path):
    X, y = rows
    model = LTLSClassifier(density=0.1, replay_size=0, **SMALL).fit(X, y)  # weights alone
    model.save(tmp_path / "pruned.ltls")
    model.save(tmp_path / "all.ltls", dtype="float32")
    pruned, whole = (ltls.load(tmp_path / f"{name}.ltls") for name in ("pruned", "all"))
    for ours, theirs in zip(model.predict_topk(X, 3), pruned.predict_topk(X, 3), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(model.predict_proba(X[:9]), pruned.predict_proba(X[:9]))
    dense = LTLSClassifier(density=1, **SMALL).fit(X, y)
    np.testing.assert_array_equal(whole.coef_, dense.coef_)
    facts = describe(tmp_path / "pruned.ltls")
    assert (facts["format_version"], facts["dtype"]) == (4, "int8")
    assert facts["density"] == pytest.approx(0.1, rel=0.1)
    assert facts["features"] == 400
    assert describe(tmp_path / "all.ltls")["format_version"] == 2
    sizes = [(tmp_path / f"{name}.ltls").stat().st_size for name in ("pruned", "all")]
    assert sizes[0] < sizes[1] / 5


def test_a_predictor_predicts_as_the_model_does(rows):
    X, y = rows
    model = LTLSClassifier(density=0.1, **SMALL).fit(X, y)
    labels, scores = model.predictor(3)(sp.csr_matrix(X[:20]))
    np.testing.assert_array_equal(labels, model.predict_topk(X[:20], 3)[0])
    np.testing.assert_array_equal(scores, model.predict_topk(X[:20], 3)[1])


def test_partial_fit_continues_with_all_weights(rows, tmp_path):
    X, y = rows
    pruned, whole = (LTLSClassifier(density=d, **SMALL).fit(X, y) for d in (0.1, 1))
    pruned.save(tmp_path / "model.ltls")
    np.testing.assert_array_equal(
        pruned.partial_fit(X[:50], y[:50]).coef_, whole.partial_fit(X[:50], y[:50]).coef_
    )
    loaded = ltls.load(tmp_path / "model.ltls").partial_fit(X[:50], y[:50])
    assert loaded.score(X, y) > 0.9


def test_streams_and_several_labels(rows):
    X, y = rows
    batches = [(X[i : i + 300], y[i : i + 300]) for i in range(0, 1200, 300)]
    streamed = LTLSClassifier(density=0.1, **SMALL).fit_stream(batches)
    assert isinstance(streamed.model_.weights, PrunedWeights)
    assert streamed.score(X, y) > 0.9
    tagger = LTLSClassifier(density=0.2, **SMALL).fit(X, [[label, label + 1] for label in y])
    assert isinstance(tagger.model_.weights, PrunedWeights)
    assert tagger.predict(X[:5]).shape == (5, 31)


def test_auto_prunes_only_large_models_with_enough_rows():
    def density(config=None, in_memory=True, **changes):
        size = {"n_rows": 2000, "n_features": 50_000, "nnz": 10**5, "n_labels": 500, **changes}
        return plan_for(config or TrainConfig(), DatasetSize(**size), in_memory).density

    assert density() is None  # to be chosen
    assert density(n_rows=900) == 1
    assert density(n_features=50) == 1
    assert density(in_memory=False) == 1  # no held-out rows
    assert density(in_memory=False, n_rows=100_000) is None
    assert density(TrainConfig(loss="separation")) == 1
    assert density(TrainConfig(size_budget="9MB")) is None  # a budget changes nothing if it can
    assert density(TrainConfig(density=0.5)) == 0.5
    held_out = plan_for(TrainConfig(embedding_dim=0), DatasetSize(2000, 50_000, 10**5, 500))
    assert held_out.n_held_out == 200


def test_auto_keeps_a_tenth_or_less_where_that_is_as_good(rows):
    X, y = rows
    noise = sp.random(1200, 6000, 0.004, "csr", np.float32, np.random.default_rng(1))
    wide = sp.hstack([X, noise]).tocsr()
    model = LTLSClassifier(width=8, n_trellises=4, embedding_dim=0, random_state=0)
    model.fit(wide[:1000], y[:1000])
    weights = model.model_.weights
    assert isinstance(weights, PrunedWeights)
    assert len(weights.values) <= 0.11 * model.coef_.size
    assert model.score(wide[1000:], y[1000:]) > 0.9


def test_nothing_is_dropped_where_every_weight_counts():
    """Dense random features: each weight carries as much as any other."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 60)).astype(np.float32)
    y = (X @ rng.normal(size=(60, 8))).argmax(axis=1)
    fitted = LTLSClassifier(4, 2, embedding_dim=0, density=1, epochs=10, random_state=0)
    model = fitted.fit(X[:1000], y[:1000]).model_
    ids = np.array([model.labels.id(label) for label in y.tolist()])
    truth = Examples(X, np.arange(1501), ids, None, False)
    model.counts = np.bincount(ids)
    assert choose_density(model, (truth, np.arange(1000, 1500)), False, None) > 0.1


def test_a_damaged_pruned_file_is_rejected(rows, tmp_path):
    path = tmp_path / "model.ltls"
    LTLSClassifier(density=0.1, **SMALL).fit(*rows).save(path)
    file = TensorFile(path, MODEL)
    tensors = {name: np.array(file.tensor(name)) for name in file.tensors}
    tensors["weights.columns"] = tensors["weights.columns"].astype(np.uint16)
    tensors["weights.columns"][3] = 60_000
    write(path, MODEL, file.description, tensors)
    with pytest.raises(ModelFileError):
        ltls.load(path)
