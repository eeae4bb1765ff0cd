"""Models of every recipe: all ways to ask agree; copies, files and threads change nothing."""

import copy
import pickle

import numpy as np
import problems
import pytest
from scipy.sparse import csr_array, random_array
from sklearn.base import clone

import ltls
from ltls import LTLSClassifier
from ltls.model.model import FEW_LABELS
from ltls.settings import Neighbours, Propensity, Trellises, Views


def clustered(n_rows, n_labels, several=False, seed=0):
    """Rows around sparse centres of labels, each of which occurs; labels are strings."""
    rng = np.random.default_rng(seed)
    centres = random_array((n_labels, 400), density=0.02, format="csr", dtype=np.float32, rng=rng)
    first = np.concatenate([np.arange(n_labels), rng.integers(0, n_labels, n_rows - n_labels)])
    noise = random_array((n_rows, 400), density=0.005, format="csr", dtype=np.float32, rng=rng)
    X = centres[first] + 0.5 * noise
    if not several:
        return csr_array(X), [f"label {label:05}" for label in first]
    second = (first + 1 + rng.integers(0, 3, n_rows)) % n_labels
    y = [sorted({f"label {a:05}", f"label {b:05}"}) for a, b in zip(first, second, strict=True)]
    return csr_array(X + centres[second]), y


def vectors():
    """Dense rows around the vectors of 80 labels, as embeddings of texts are."""
    rng = np.random.default_rng(0)
    y = np.arange(1300) % 80
    X = rng.normal(size=(80, 64))[y] + 0.8 * rng.normal(size=(1300, 64))
    return X.astype(np.float32), [f"label {label:05}" for label in y]


EVERYTHING = {
    "views": Views(n_views=3, cluster_size=8),
    "prototypes": True,
    "neighbours": Neighbours(n_neighbors=10),
    "propensity": Propensity(strength=0.3),
}
CASES = {
    "one-vs-all": (problems.digits, {}),
    "trellises": (problems.sparse, {}),
    "trellises, several": (lambda: problems.sparse(multilabel=True), {}),
    "separation": (problems.sparse, {"trellises": Trellises(loss="separation")}),
    "classifiers": (lambda: clustered(1300, 80, several=True), {}),
    "views": (lambda: clustered(1300, 80), {}),
    "views, several": (lambda: clustered(1300, 80, several=True), {"views": True}),
    "everything": (lambda: clustered(1300, 80), EVERYTHING),
    "everything, several": (lambda: clustered(1300, 80, several=True), EVERYTHING),
    "label matrix": (vectors, {"label_matrix": True}),
    "many labels": (lambda: clustered(5000, 2500), {}),
    "many labels, several": (lambda: clustered(5000, 2500, several=True), EVERYTHING),
}


@pytest.fixture(scope="module", params=CASES.values(), ids=CASES)
def case(request):
    """(X, y, fitted model)."""
    make, given = request.param
    X, y = make()
    return X, y, LTLSClassifier(random_state=0, n_jobs=1, **given).fit(X, y)


def test_recipes_follow_from_the_data(case, request):
    name = request.node.callspec.id
    if name in ("one-vs-all", "trellises", "classifiers", "views"):
        assert case[2].plan_.split(":")[0] == name


def ids_of(model, labels):
    return np.searchsorted(model.classes_, labels)


def found(best, y):
    return np.mean([a in np.atleast_1d(b) for a, b in zip(best, y, strict=True)])


def same(model, other, X):
    """Whether two models have the same parts and predict the same, bit for bit."""
    assert [part.name for part in model.model_.parts] == [part.name for part in other.model_.parts]
    assert model.model_.weights == other.model_.weights
    assert model.model_.calibration.threshold == other.model_.calibration.threshold
    assert model.codebooks_ == other.codebooks_
    for ours, theirs in zip(model.predict_topk(X, 7), other.predict_topk(X, 7), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    if hasattr(model, "predict_proba"):
        ours, theirs = (each.predict_topk(X, 7, proba=True)[1] for each in (model, other))
        np.testing.assert_array_equal(ours, theirs)


# Predictions


def test_the_best_label_is_the_same_however_it_is_asked_for(case):
    X, y, model = case
    X, y = X[:300], y[:300]
    best = model.predict_topk(X, 1)[0][:, 0]
    assert found(best, y) > 0.85
    every = model.decision_function(X)
    assert every.shape == (300, len(model.classes_))
    np.testing.assert_array_equal(model.classes_[every.argmax(axis=1)], best)
    if model.multilabel_:
        matrix = model.predict(X)
        np.testing.assert_array_equal(matrix.toarray(), every >= model.threshold_)
        truth = np.array([np.isin(model.classes_, own) for own in y])
        hits = (matrix.toarray() & truth).sum()
        assert 2 * hits / (matrix.sum() + truth.sum()) > 0.6
        assert model.score(X, y) == np.mean((matrix.toarray() == truth).all(axis=1))
        lists = model.predict(X, output="lists")
        for row, own in enumerate(lists):
            assert set(own) == set(model.classes_[matrix[[row]].indices].tolist())
            scores = every[row, ids_of(model, own)] if own else []
            assert (np.diff(scores) <= 0).all()
    else:
        np.testing.assert_array_equal(model.predict(X), best)
        assert model.predict(X, output="lists") == [[label] for label in best.tolist()]
        assert model.score(X, y) == np.mean(best == np.array(y))


@pytest.mark.parametrize("k", [1, 5, 60, 100_000])
def test_the_best_labels_and_their_scores(case, k):
    X, _, model = case
    X, n_labels = X[:100], len(model.classes_)
    labels, scores = model.predict_topk(X, k)
    assert labels.shape == scores.shape == (100, min(k, n_labels))
    assert (np.diff(scores, axis=1) <= 0).all()
    assert all(len(set(row)) == len(row) for row in labels.tolist())
    every = model.decision_function(X)
    own = np.take_along_axis(every, ids_of(model, labels), axis=1)
    np.testing.assert_allclose(scores, own, rtol=1e-5, atol=1e-5)
    # Labels that nothing proposes are level with the last candidate at best.
    np.testing.assert_allclose(scores, -np.sort(-every, axis=1)[:, :k], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(labels[:, 0], model.predict_topk(X, 1)[0][:, 0])
    predictor = model.predictor(k)
    for ours, theirs in zip(predictor(X), (labels, scores), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_probabilities_agree_with_each_other(case):
    X, _, model = case
    X = X[:100]
    if not model.model_.probabilistic:
        for method in ("predict_proba", "predict_log_proba", "log_proba"):
            assert not hasattr(model, method)
        with pytest.raises(AttributeError, match="has no probabilities"):
            model.predict_topk(X, 2, proba=True)
        return
    every = model.predict_proba(X)
    assert ((every >= 0) & (every <= 1)).all()
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(model.predict_log_proba(X), np.log(every))
    prefers_rare = any(part.name == "propensity" for part in model.model_.parts)
    if not model.multilabel_:
        np.testing.assert_allclose(every.sum(axis=1), 1, rtol=1e-4)
        if not prefers_rare:
            np.testing.assert_array_equal(model.classes_[every.argmax(axis=1)], model.predict(X))
    labels, probabilities = model.predict_topk(X, 3, proba=True)
    assert (np.diff(probabilities, axis=1) <= 0).all()
    own = np.take_along_axis(every, ids_of(model, labels), axis=1)
    np.testing.assert_allclose(probabilities, own, rtol=1e-5)
    if not prefers_rare:
        np.testing.assert_allclose(probabilities, -np.sort(-every, axis=1)[:, :3], rtol=1e-5)
    given = model.classes_[np.arange(100) % len(model.classes_)]
    expected = model.predict_log_proba(X)[np.arange(100), ids_of(model, given)]
    np.testing.assert_allclose(model.log_proba(X, given), expected, rtol=1e-5)


def test_rows_without_features(case):
    X, _, model = case
    empty = csr_array((3, X.shape[1]), dtype=np.float32)
    empty = empty if hasattr(X, "indptr") else empty.toarray()
    assert model.predict_topk(empty, 3)[0].shape == (3, 3)
    scores = model.decision_function(empty)
    assert np.isfinite(scores).all()
    best = model.predict_topk(empty, 1)[0][:, 0]
    np.testing.assert_array_equal(model.classes_[scores.argmax(axis=1)], best)


# The same model


def test_copies_and_loaded_models_predict_the_same(case, tmp_path):
    X, _, model = case
    for other in (copy.deepcopy(model), copy.copy(model), pickle.loads(pickle.dumps(model))):
        same(model, other, X[:200])
    model.save(tmp_path / "model.ltls")
    loaded = ltls.load(tmp_path / "model.ltls")
    same(model, loaded, X[:200])
    assert repr(loaded) == repr(model)


def test_clones_learn_the_same_with_any_number_of_threads(case):
    X, y, model = case
    other = clone(model).set_params(n_jobs=2)
    assert not hasattr(other, "model_")
    same(model, other.fit(X, y), X[:200])
    rows = X[:200]
    np.testing.assert_array_equal(model.decision_function(rows), other.decision_function(rows))


# Further rows


def test_a_loaded_model_finds_new_labels_and_keeps_old_ones(case, tmp_path):
    X, y, model = case
    model.save(tmp_path / "model.ltls")
    model = ltls.load(tmp_path / "model.ltls")
    before, n_labels = found(model.predict_topk(X, 1)[0][:, 0], y), len(model.classes_)
    rng = np.random.default_rng(5)
    own = rng.integers(0, 3, 60)
    rows = rng.random((3, X.shape[1])) * (rng.random((3, X.shape[1])) < 0.1)
    rows = csr_array(rows[own].astype(np.float32))
    rows = rows if hasattr(X, "indptr") else rows.toarray()
    names = [100 + i if model.classes_.dtype.kind == "i" else f"new {i}" for i in own.tolist()]
    targets = [[name] for name in names] if model.multilabel_ else names
    for _ in range(3):
        model.partial_fit(rows, targets)
    assert len(model.classes_) == n_labels + 3
    assert (model.predict_topk(rows, 1)[0][:, 0] == names).mean() > 0.9
    assert found(model.predict_topk(X, 1)[0][:, 0], y) > before - 0.1
    assert model.predict_topk(X[:9], n_labels + 9)[0].shape == (9, n_labels + 3)
    assert model.decision_function(X[:9]).shape == (9, n_labels + 3)
    np.testing.assert_array_equal(model.predictor(2)(X[:9])[0], model.predict_topk(X[:9], 2)[0])


@pytest.mark.parametrize("name", ["trellises", "views", "everything, several"])
def test_few_of_many_features(name, tmp_path):
    make, given = CASES[name]
    X, y = make()
    n_features = 2**20
    used = np.sort(np.random.default_rng(0).permutation(n_features)[: X.shape[1]])
    few = csr_array((X.data, used[X.indices], X.indptr), shape=(X.shape[0], n_features))
    model = LTLSClassifier(random_state=0, **given).fit(few, y)
    plain = LTLSClassifier(random_state=0, **given).fit(X, y)
    assert model.coef_.shape == (plain.coef_.shape[0], n_features)
    agree = model.predict_topk(few, 1)[0] == plain.predict_topk(X, 1)[0]
    assert agree.mean() > 0.99  # one more column, of all other features
    model.save(tmp_path / "model.ltls")
    loaded = ltls.load(tmp_path / "model.ltls")
    # New features arrive: they get weights, and those of the others stay where they are.
    extra = csr_array((few.data, (few.indices + 7) % n_features, few.indptr), shape=few.shape)
    extra.sort_indices()
    for grown in (model, loaded):
        for _ in range(3):
            grown.partial_fit(extra, y)
        assert grown.coef_.shape == (plain.coef_.shape[0], n_features)
        assert found(grown.predict_topk(extra, 1)[0][:, 0], y) > 0.8
        np.testing.assert_array_equal(grown.predictor(2)(extra)[0], grown.predict_topk(extra, 2)[0])


@pytest.mark.parametrize("cluster_size", [2, 7, 39, 40, 64, 1000])
def test_every_cluster_size(cluster_size):
    X, y = problems.sparse()
    model = LTLSClassifier(views=Views(cluster_size=cluster_size), random_state=0).fit(X, y)
    assert model.trellis_.n_classes == max(-(-40 // cluster_size), 1)
    assert model.score(X, y) > 0.9
    assert model.predict_proba(X).shape == (500, 40)


def test_beyond_few_labels_candidates_are_searched():
    X, y = clustered(5000, 2500)
    assert len(set(y)) > FEW_LABELS
    model = LTLSClassifier(random_state=0).fit(X, y)
    ids = model.model_.candidates(model.model_.columns.rows(X[:50]), None)
    assert ids.shape[1] < FEW_LABELS
    every = model.decision_function(X[:50])
    inside = np.zeros(every.shape, bool)
    for row, own in enumerate(ids):
        inside[row, own[own >= 0]] = True
    lowest = np.where(inside, every, np.inf).min(axis=1)
    assert (every[~inside] <= np.repeat(lowest, (~inside).sum(axis=1))).all()
