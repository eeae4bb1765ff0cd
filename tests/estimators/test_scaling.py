"""Unscaled dense features are standardized inside."""

import numpy as np
import pytest
from problems import in_batches
from scipy.sparse import csr_array
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

import ltls
from ltls import LTLSClassifier, presets
from ltls.settings import Numbers, Trellises

UNSCALED, SCALED = Numbers(standardize=False), Numbers(standardize=True)


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], y[order]


def fitted(model, X, y, stream=False):
    return model.fit_stream(in_batches(X, y, 25)) if stream else model.fit(X, y)


def standardizer_of(model):
    return model.model_.columns.standardizer


with_streams = pytest.mark.parametrize("stream", [False, True], ids=["fit", "fit_stream"])


@with_streams
def test_standardizing_inside_is_standardizing_before(wine, stream):
    X, y = wine
    scaled = StandardScaler().fit_transform(X)
    model = fitted(LTLSClassifier(random_state=0), X, y, stream)
    before = fitted(LTLSClassifier(features=UNSCALED, random_state=0), scaled, y, stream)
    ours, theirs = model.decision_function(X), before.decision_function(scaled)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(standardizer_of(model).mean, X.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(standardizer_of(model).scale, X.std(axis=0), rtol=1e-10)
    half = fitted(LTLSClassifier(random_state=0), X[:120], y[:120], stream)
    assert half.score(X[120:], y[120:]) > 0.93
    h = X @ model.coef_.T + model.intercept_  # weights of the features as they are
    np.testing.assert_allclose(model.edge_scores(X), h, rtol=1e-2, atol=1e-2)


@with_streams
def test_scaled_and_sparse_features_and_the_paper_are_left_alone(wine, stream):
    X, y = wine
    scaled = StandardScaler().fit_transform(X)
    for model, rows in (
        (LTLSClassifier(), scaled),
        (LTLSClassifier(), csr_array(X)),
        (LTLSClassifier(features=UNSCALED), X),
        (presets.paper(epochs=1), X),
    ):
        assert standardizer_of(fitted(model, rows, y, stream)) is None
    with pytest.raises(ValueError, match="standardize=True would make sparse features dense"):
        fitted(LTLSClassifier(features=SCALED), csr_array(X), y, stream)
    assert standardizer_of(fitted(LTLSClassifier(features=SCALED), scaled, y, stream)) is not None


def test_files_predictors_and_partial_fit_keep_it(wine, tmp_path):
    X, y = wine
    model = LTLSClassifier(random_state=0).fit(X, y)
    model.save(tmp_path / "model.ltls")
    loaded = ltls.load(tmp_path / "model.ltls")
    expected = model.predict_topk(X, 2)
    np.testing.assert_array_equal(loaded.predict_topk(X, 2)[0], expected[0])
    np.testing.assert_array_equal(loaded.predict(csr_array(X)), expected[0][:, 0])
    labels, scores = loaded.predictor(2)(np.arange(13), X[5])
    np.testing.assert_array_equal(labels, expected[0][5])
    np.testing.assert_allclose(scores, expected[1][5], rtol=1e-4, atol=1e-4)
    [[best]] = loaded.explain(X[[5]], k=1)
    assert best.score == pytest.approx(expected[1][5, 0], rel=1e-4, abs=1e-3)
    mean = standardizer_of(loaded).mean
    loaded.partial_fit(X[:20], y[:20])
    assert standardizer_of(loaded).mean is mean
    assert loaded.score(X, y) > 0.9


def test_codebooks_of_streams_are_those_of_standardized_rows(wine):
    X, y = wine
    model = LTLSClassifier(trellises=Trellises(assignment="similarity"), random_state=0)
    paths = [
        [book.path_of(np.arange(3)).tolist() for book in fitted(model, rows, y, True).codebooks_]
        for rows in (X, StandardScaler().fit_transform(X))
    ]
    assert paths[0] == paths[1]


def test_partial_fit_standardizes_by_its_first_batch(wine):
    X, y = wine
    model = LTLSClassifier(random_state=0)
    for rows, labels in in_batches(X, y, 120):
        model.partial_fit(rows, labels)
    np.testing.assert_allclose(standardizer_of(model).mean, X[:120].mean(axis=0))
    for _ in range(4):
        model.partial_fit(X, y)
    assert model.score(X, y) > 0.95
    # Few rows do not tell whether features are unscaled, unless one says that they are.
    assert standardizer_of(LTLSClassifier().partial_fit(X[:99], y[:99])) is None
    assert standardizer_of(LTLSClassifier(features=SCALED).partial_fit(X[:9], y[:9])) is not None
    assert standardizer_of(LTLSClassifier(features=UNSCALED).partial_fit(X, y)) is None
    assert standardizer_of(LTLSClassifier().partial_fit(csr_array(X), y)) is None


@pytest.mark.parametrize("factor", [1e-8, 1e-3, 1e3, 1e8])
@pytest.mark.parametrize(
    "parts", [{}, {"label_weights": True}, {"label_weights": True, "views": True}]
)
def test_very_small_and_large_features_are_learned_as_others_are(parts, factor):
    rng = np.random.default_rng(0)
    centers, y = rng.normal(size=(30, 8)), np.repeat(np.arange(30), 40)
    X, X_test = (centers[y] + 0.4 * rng.normal(size=(len(y), 8)) for _ in range(2))
    X[:, 7] = X_test[:, 7] = 0  # constant
    usual, scaled = (
        LTLSClassifier(random_state=0, **parts).fit(times * X, y) for times in (1, factor)
    )
    assert usual.model_.columns.standardizer is None
    found = [
        (model.predict(times * X_test) == y).mean()
        for model, times in ((usual, 1), (scaled, factor))
    ]
    assert found[1] > found[0] - 0.02
    # One scale for all: features that tell little stay as small as they are.
    scale = scaled.model_.columns.standardizer.scale
    np.testing.assert_allclose(scale, np.median((factor * X[:, :7]).std(axis=0)))


@pytest.mark.parametrize("scale", [1e-44, 1e-40, 1e-38, 1e-30])
def test_sparse_rows_of_the_smallest_numbers_have_unit_length(scale):
    X = csr_array(np.eye(6, dtype=np.float32) * np.float32(scale))
    model = LTLSClassifier(random_state=0, label_weights=False).set_params(trellises__epochs=20)
    assert model.fit(X, range(6)).predict(X).tolist() == [*range(6)]
    assert all(np.isfinite(row[0].score) for row in model.explain(X, k=1))
