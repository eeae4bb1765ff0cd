"""The predictor of single rows agrees with predict_topk, from any thread."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp

from ltls import LTLSClassifier, TableCodebook
from ltls.settings import Numbers, Trellises, Views

N_FEATURES = 300


def rows(n_rows=200, seed=0, dtype=np.float32):
    X = sp.random(n_rows, N_FEATURES, 0.05, "csr", dtype, np.random.default_rng(seed))
    X.sort_indices()
    return X


def fitted(n_classes=40, **parameters):
    X = rows()
    y = np.random.default_rng(1).integers(n_classes, size=X.shape[0])
    y[:n_classes] = np.arange(n_classes)
    return LTLSClassifier(random_state=0, **parameters).fit(X, y)


@cache
def plain():
    """A model that no test changes."""
    return fitted()


MODELS = {
    "softmax": {},
    "separation": {"trellises": Trellises(loss="separation", average=True)},
    "logistic": {"trellises": Trellises(loss="logistic", width=3)},
    "ranking": {"trellises": Trellises(assignment="ranking")},
    "no intercept": {"features": Numbers(fit_intercept=False)},
    "similar": {"trellises": Trellises(width=4, n_trellises=2, assignment="similarity")},
    "wide": {"trellises": Trellises(width=40)},
    "label weights": {"label_weights": True},
    "views": {"views": Views(cluster_size=5), "prototypes": True, "neighbours": True},
}


@pytest.fixture(scope="module", params=MODELS.values(), ids=MODELS)
def model(request):
    return fitted(**request.param)


def same(found, expected):
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("k", [1, 5, 100])
def test_every_row_format_agrees_with_predict_topk(model, k):
    X = rows(37, seed=5)
    expected = model.predict_topk(X, k)
    predictor = model.predictor(k)
    same(predictor(X), expected)
    same(predictor(X.indptr, X.indices, X.data), expected)
    for i in range(37):
        row = X[[i]]
        same(predictor(row.indices, row.data), [answer[i] for answer in expected])
        same(predictor(row), [answer[[i]] for answer in expected])


@pytest.mark.parametrize("index", [np.int32, np.int64, np.uint8, np.uint64])
@pytest.mark.parametrize("value", [np.float32, np.float64, np.float16, np.int64, np.bool_])
def test_types_of_arrays_do_not_matter(index, value):
    model = plain()
    predictor = model.predictor(3)
    features, values = np.array([7, 100, 201]), np.array([1, 0, 1])
    expected = predictor(features, values.astype(float))
    same(predictor(features.astype(index), values.astype(value)), expected)
    same(predictor(features.tolist(), values.tolist()), expected)
    apart = np.repeat(features, 2).astype(index)[::2], np.repeat(values, 2).astype(value)[::2]
    same(predictor(*apart), expected)
    indptr = np.array([0, 3, 3], np.int32)
    same([answer[0] for answer in predictor(indptr, features.astype(index), values)], expected)


def test_unsorted_and_duplicate_features():
    predictor = plain().predictor(3)
    expected = predictor([7, 100], [1.0, 2.0])
    same(predictor([100, 7], [2.0, 1.0]), expected)
    same(predictor([7, 100, 100], [1.0, 0.5, 1.5]), expected)


def test_a_row_without_features():
    model = plain()
    expected = model.predict_topk(sp.csr_matrix((1, N_FEATURES)), 3)
    same(model.predictor(3)([], []), [answer[0] for answer in expected])
    labels, scores = model.predictor(3)(np.array([0]), np.array([], np.int64), np.array([]))
    assert labels.shape == scores.shape == (0, 3)


def test_free_paths_are_never_returned():
    X, y = rows(), np.arange(200) % 5
    book = TableCodebook(5, [0, 1, 2, 3, 4])
    model = LTLSClassifier(trellises=Trellises(assignment=book), random_state=0).fit(X, y)
    model.partial_fit(rows(1, seed=3), [5])  # the trellis grows and has free paths
    assert model.trellis_.n_classes > 6
    X = rows(50, seed=4)
    same(model.predictor(6)(X), model.predict_topk(X, 6))
    assert set(np.unique(model.predictor(6)(X)[0])) == set(range(6))


def test_a_predictor_is_a_snapshot():
    model = fitted(trellises=Trellises(assignment="ranking"))
    X = rows(30, seed=7)
    predictor, expected = model.predictor(2), model.predict_topk(X, 2)
    model.partial_fit(rows(50, seed=8), np.arange(50) + 100)
    same(predictor(X), expected)
    assert not np.array_equal(model.predict_topk(X, 2)[1], expected[1])


@pytest.mark.parametrize("name", ["softmax", "views"])
@pytest.mark.parametrize("n_rows", [1, 64])
def test_concurrent_calls(name, n_rows):
    model = fitted(**MODELS[name])
    predictor = model.predictor(5)
    parts = [rows(n_rows, seed) for seed in range(40)]
    expected = [model.predict_topk(part, 5) for part in parts]
    start = threading.Barrier(4)

    def call(first):
        start.wait()
        return [predictor(parts[i]) for i in range(first, 40, 4) for _ in range(5)]

    with ThreadPoolExecutor(4) as threads:
        for first, found in enumerate(threads.map(call, range(4))):
            for j, answer in enumerate(found):
                same(answer, expected[first + 4 * (j // 5)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, N_FEATURES], [1.0, 1.0]), "indices must be between 0 and 299, got 300"),
        (([-1], [1.0]), "indices must be between 0 and 299, got -1"),
        (([0, 1], [1.0]), "the same length"),
        (([0], [np.nan]), "X must have values of at most"),
        (([0], [-np.inf]), "X must have values of at most"),
        (([0], [1e16]), "X must have values of at most"),
        (([0, 2], [0], [1.0]), "not a valid CSR matrix|index pointer"),
        (([1, 0], [0], [1.0]), "not a valid CSR matrix|index pointer"),
        (([-1, 1], [0], [1.0]), "not a valid CSR matrix|index pointer"),
        (([0.5], [1.0]), "indices must be integers"),
        (([[0, 1]], [1.0, 2.0]), "indices must have 1 dim"),
        (([0], ["a"]), "values must be numbers"),
        ((), "takes"),
        ((np.full((1, N_FEATURES), np.nan),), "X contains NaN"),
        ((np.zeros((1, N_FEATURES - 1)),), "X has 299 features, but"),
        ((np.array([["a"] * N_FEATURES]),), "not compatible|could not convert string"),
        ((1, 2, 3, 4), "takes"),
        ((sp.csr_matrix((1, N_FEATURES - 1)),), "X has 299 features, but"),
    ],
)
def test_invalid_rows_are_rejected(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        plain().predictor(2)(*arguments)


@pytest.mark.parametrize("form", ["tocsc", "tocoo", "tolil", "todok", "tobsr", "toarray"])
@pytest.mark.parametrize("n_rows", [10, N_FEATURES])
def test_every_other_matrix_is_converted_or_rejected(form, n_rows):
    model = plain()
    X = rows(n_rows, seed=5)
    try:
        labels, _ = model.predictor(2)(getattr(X, form)())
    except (TypeError, ValueError):
        return
    np.testing.assert_array_equal(labels, model.predict_topk(X, 2)[0])


def test_one_dense_row_is_a_batch_of_one():
    model, X = plain(), rows(3, seed=5).toarray()
    expected = [answer[:1] for answer in model.predict_topk(X, 2)]
    for row in (X[0], X[0].tolist()):
        same(model.predictor(2)(row), expected)


def test_one_dense_row_of_any_type():
    pandas = pytest.importorskip("pandas")
    row = rows(1, seed=5).toarray()[0]
    expected = plain().predictor(2)(row)
    for given in (tuple(row.tolist()), pandas.Series(row), pandas.Series([row.tolist()])):
        same(plain().predictor(2)(given), expected)
    with pytest.raises(ValueError, match="X must have 2 dimensions"):
        plain().predictor(2)(sp.csr_array(row[None])[0])


def test_only_data_frames_have_names():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.eye(3), columns=["x", "y", "z"])
    model = LTLSClassifier(random_state=0).fit(frame, [0, 1, 2])
    predictor, expected = model.predictor(2), model.predict_topk(frame, 2)
    same(predictor(frame), expected)
    same(predictor(frame.to_numpy()), expected)
    with pytest.raises(ValueError, match="feature names should match"):
        predictor(frame[["z", "y", "x"]])


def test_k_is_positive_and_at_most_all_labels():
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        plain().predictor(0)
    assert repr(plain().predictor(99)) == "<Predictor of the 40 best of 40 labels>"
