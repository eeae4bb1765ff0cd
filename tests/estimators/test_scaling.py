"""Unscaled dense features are standardized inside."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

import ltls
from ltls import LTLSClassifier, presets


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], y[order]


def test_standardizing_inside_is_standardizing_before(wine):
    X, y = wine
    model = LTLSClassifier(random_state=0).fit(X, y)
    before = LTLSClassifier(random_state=0, standardize=False).fit(
        StandardScaler().fit_transform(X), y
    )
    np.testing.assert_array_equal(
        model.predict(X), before.predict(StandardScaler().fit_transform(X))
    )
    assert LTLSClassifier(random_state=0).fit(X[:120], y[:120]).score(X[120:], y[120:]) > 0.93


def test_weights_are_those_of_the_features_as_they_are(wine):
    X, y = wine
    model = LTLSClassifier(random_state=0, label_weights=True).fit(X, y)
    h = X @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(model.edge_scores(X), h, rtol=1e-2, atol=1e-2)
    assert model.label_coef_.shape == (3, 13)
    assert model.label_intercept_.shape == (3,)


def test_files_predictors_and_partial_fit_keep_it(wine, tmp_path):
    X, y = wine
    model = LTLSClassifier(random_state=0).fit(X, y)
    model.save(tmp_path / "model.ltls", dtype="float32")
    loaded = ltls.load(tmp_path / "model.ltls")
    expected = model.predict_topk(X, 2)
    np.testing.assert_array_equal(loaded.predict_topk(X, 2)[0], expected[0])
    np.testing.assert_array_equal(loaded.predict(csr_array(X)), expected[0][:, 0])
    labels, scores = loaded.predictor(2)(np.arange(13), X[5])
    np.testing.assert_array_equal(labels, expected[0][5])
    np.testing.assert_allclose(scores, expected[1][5], rtol=1e-4, atol=1e-4)
    [[best]] = loaded.explain(X[[5]], k=1)
    assert best.score == pytest.approx(expected[1][5, 0], rel=1e-4, abs=1e-3)
    mean = loaded.model_.standardizer.mean
    loaded.partial_fit(X[:20], y[:20])
    assert loaded.model_.standardizer.mean is mean
    assert loaded.score(X, y) > 0.9


def test_scaled_and_sparse_features_and_the_paper_are_left_alone(wine):
    X, y = wine
    scaled = np.random.default_rng(0).normal(size=X.shape)
    for estimator, rows in (
        (LTLSClassifier(epochs=1), scaled),
        (LTLSClassifier(epochs=1), csr_array(X)),
        (LTLSClassifier(epochs=1, standardize=False), X),
        (presets.paper(epochs=1), X),
    ):
        assert estimator.fit(rows, y).model_.standardizer is None
    with pytest.raises(ValueError, match="standardize=True would make sparse features dense"):
        LTLSClassifier(standardize=True).fit(csr_array(X), y)
    assert LTLSClassifier(epochs=1, standardize=True).fit(scaled, y).model_.standardizer is not None


def batches_of(X, y, size=25):
    return [(X[first : first + size], y[first : first + size]) for first in range(0, len(y), size)]


def test_streams_standardize_by_all_batches(wine, tmp_path):
    X, y = wine
    whole = LTLSClassifier(random_state=0).fit(X, y)
    streamed = LTLSClassifier(random_state=0).fit_stream(batches_of(X, y))
    found, expected = streamed.model_.standardizer, whole.model_.standardizer
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-10)
    np.testing.assert_allclose(found.scale, expected.scale, rtol=1e-10)
    assert streamed.score(X, y) > 0.95
    before = LTLSClassifier(random_state=0, standardize=False)
    before.fit_stream(batches_of(StandardScaler().fit_transform(X), y))
    np.testing.assert_allclose(
        streamed.decision_function(X),
        before.decision_function(StandardScaler().fit_transform(X)),
        rtol=1e-3,
        atol=1e-3,
    )
    streamed.save(tmp_path / "model.ltls")
    assert ltls.load(tmp_path / "model.ltls").model_.standardizer is not None


def test_streams_are_left_alone_where_fit_leaves_features_alone(wine):
    X, y = wine
    scaled = StandardScaler().fit_transform(X)
    for estimator, rows in (
        (LTLSClassifier(epochs=1), scaled),
        (LTLSClassifier(epochs=1), csr_array(X)),
        (LTLSClassifier(epochs=1, standardize=False), X),
        (presets.paper(epochs=1), X),
    ):
        assert estimator.fit_stream(batches_of(rows, y)).model_.standardizer is None
    with pytest.raises(ValueError, match="standardize=True would make sparse features dense"):
        LTLSClassifier(standardize=True).fit_stream(batches_of(csr_array(X), y))


def test_buckets_of_streams_are_those_of_standardized_rows(wine):
    X, y = wine
    scaled = StandardScaler().fit_transform(X)
    given = {"assignment": "similarity", "random_state": 0, "epochs": 1}
    streamed = LTLSClassifier(**given).fit_stream(batches_of(X, y))
    before = LTLSClassifier(**given).fit_stream(batches_of(scaled, y))
    ids = np.arange(3)
    for one, other in zip(streamed.codebooks_, before.codebooks_, strict=True):
        np.testing.assert_array_equal(one.path_of(ids), other.path_of(ids))


def test_partial_fit_standardizes_by_its_first_batch(wine):
    X, y = wine
    model = LTLSClassifier(random_state=0)
    for rows, labels in batches_of(X, y, 120):
        model.partial_fit(rows, labels)
    expected = StandardScaler().fit(X[:120])
    np.testing.assert_allclose(model.model_.standardizer.mean, expected.mean_)
    for _ in range(4):
        model.partial_fit(X, y)
    assert model.score(X, y) > 0.95
    # Few rows do not tell whether features are unscaled, unless one says that they are.
    assert LTLSClassifier().partial_fit(X[:99], y[:99]).model_.standardizer is None
    assert LTLSClassifier(standardize=True).partial_fit(X[:9], y[:9]).model_.standardizer
    assert LTLSClassifier(standardize=False).partial_fit(X, y).model_.standardizer is None
    assert LTLSClassifier().partial_fit(csr_array(X), y).model_.standardizer is None
