"""LTLSClassifier with label weights: all that an estimator does, with and without buckets."""

import copy
import math
import pickle

import numpy as np
import problems
import pytest
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import ltls
from ltls import Checkpoint, LTLSClassifier
from ltls.core import _engine
from ltls.storage.model_file import describe
from ltls.structure.codebook import BucketCodebook
from ltls.training import label_weights as training
from ltls.training.interrupt import TimeLimitExceededError, TrainingInterruptedWarning, time_limit

N_LABELS = 40


def estimator(**settings):
    settings = {"width": 4, "n_trellises": 2, "label_weights": True, "random_state": 0} | settings
    return LTLSClassifier(**({"bucket_size": 4, "n_jobs": 1} | settings))


def ids_of(model, labels):
    return np.searchsorted(model.classes_, labels)


def same(model, other, X):
    """Whether two models have the same parts and predict the same."""
    np.testing.assert_array_equal(model.coef_, other.coef_)
    assert_same_label_weights(model, other)
    assert model.codebooks_ == other.codebooks_
    for ours, theirs in zip(model.predict_topk(X, 7), other.predict_topk(X, 7), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert model.model_.threshold == other.model_.threshold


def assert_same_label_weights(model, other):
    np.testing.assert_array_equal(model.label_coef_.toarray(), other.label_coef_.toarray())
    np.testing.assert_array_equal(model.label_intercept_, other.label_intercept_)
    assert model.model_.label_weights.weight == other.model_.label_weights.weight


CASES = [(bucket_size, several) for bucket_size in (1, 4) for several in (False, True)]
NAMES = [f"{size} per path, {'several labels' if many else 'one label'}" for size, many in CASES]


@pytest.fixture(scope="module", params=CASES, ids=NAMES)
def case(request):
    """(X, y, fitted model)."""
    bucket_size, several = request.param
    X, y = problems.sparse(multilabel=several)
    return X, y, estimator(bucket_size=bucket_size).fit(X, y)


@pytest.fixture(scope="module")
def one():
    return problems.sparse()


@pytest.fixture(scope="module")
def several():
    return problems.sparse(multilabel=True)


def in_batches(X, y, size=120):
    return [(X[i : i + size], y[i : i + size]) for i in range(0, len(y), size)]


# Learned attributes


def test_parts_of_a_model(case):
    X, _, model = case
    bucket_size = model.bucket_size
    assert model.model_.shares_paths == (bucket_size > 1)
    assert model.trellis_.n_classes == N_LABELS / bucket_size
    for book in model.codebooks_:
        assert isinstance(book, BucketCodebook) == (bucket_size > 1)
        sizes = np.bincount(book.path_of(np.arange(N_LABELS)))
        assert (sizes == bucket_size).all()
    assert model.label_coef_.shape == (N_LABELS, X.shape[1])
    assert model.label_coef_.nnz > 0
    assert model.label_intercept_.shape == (N_LABELS,)


def test_a_model_without_label_weights(one):
    plain = estimator(label_weights=False, bucket_size=1).fit(*one)
    assert plain.model_.label_weights is None
    assert plain.label_coef_ is None
    assert plain.label_intercept_ is None


def test_scores_follow_their_definition(case):
    X, _, model = case
    weights, decoder = model.model_.label_weights, model.model_.decoder()
    Z = X.toarray().astype(float)
    Z /= np.maximum(np.linalg.norm(Z, axis=1, keepdims=True), 1e-30)
    s = Z @ model.label_coef_.toarray().T.astype(float) + model.label_intercept_
    parts = [h for _, h in model.model_.edge_scores(X, None)]
    b = decoder.all_scores(np.concatenate(parts)).astype(float)
    expected = -(np.maximum(0, 1 - s) ** 3) + weights.weight * b
    labels, scores = model.predict_topk(X, 5)
    own = np.take_along_axis(expected, ids_of(model, labels), axis=1)
    np.testing.assert_allclose(scores, own, rtol=1e-3, atol=1e-3)
    candidates, _ = model.model_.candidates(X, weights.n_candidates, None)
    among = np.take_along_axis(expected, candidates, axis=1)
    np.testing.assert_allclose(scores, -np.sort(-among, axis=1)[:, :5], rtol=1e-3, atol=1e-3)


def test_label_weights_help_where_labels_share_paths(one):
    X, y = one
    y = np.array(y)
    model = estimator(n_trellises=1).fit(X[:400], y[:400])
    assert model.score(X[400:], y[400:]) > 0.8
    model.model_.label_weights = None
    assert model.score(X[400:], y[400:]) < 0.4  # a guess among the four labels of a path


@pytest.mark.parametrize("bucket_size", [2, 7, 20, 39, 40, 64])
def test_every_bucket_size(one, bucket_size):
    X, y = one
    model = estimator(bucket_size=bucket_size).fit(X, y)
    assert model.trellis_.n_classes == math.ceil(N_LABELS / bucket_size)
    assert model.score(X, y) > 0.9
    assert model.predict_proba(X).shape == (500, N_LABELS)
    labels, _ = model.predictor(3)(X)
    np.testing.assert_array_equal(labels, model.predict_topk(X, 3)[0])


@pytest.mark.parametrize("loss", ["softmax", "separation", "logistic"])
@pytest.mark.parametrize("bucket_size", [1, 4])
def test_every_loss(one, several, loss, bucket_size):
    for X, y in (one, several):
        model = estimator(loss=loss, bucket_size=bucket_size).fit(X, y)
        labels, scores = model.predict_topk(X, 3)
        assert labels.shape == scores.shape == (500, 3)
        found = [a in np.atleast_1d(b) for a, b in zip(labels[:, 0], y, strict=True)]
        assert np.mean(found) > 0.9


# Predictions


def test_predictions_of_one_label_agree_with_each_other(one):
    X, y = one
    for bucket_size in (1, 4):
        model = estimator(bucket_size=bucket_size).fit(X, y)
        predicted = model.predict(X)
        best, _ = model.predict_topk(X, 1)
        np.testing.assert_array_equal(best[:, 0], predicted)
        np.testing.assert_array_equal(
            model.classes_[model.decision_function(X).argmax(1)], best.T[0]
        )
        probabilities = model.predict_proba(X)
        assert probabilities.shape == (500, N_LABELS)
        assert (probabilities >= 0).all()
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
        np.testing.assert_array_equal(model.classes_[probabilities.argmax(axis=1)], predicted)
        np.testing.assert_allclose(
            np.exp(model.predict_log_proba(X)), probabilities, rtol=1e-4, atol=1e-7
        )
        assert model.score(X, y) == np.mean(predicted == np.array(y))
        assert model.score(X, y) > 0.9


def test_predictions_of_several_labels_agree_with_each_other(several):
    X, y = several
    for bucket_size in (1, 4):
        model = estimator(bucket_size=bucket_size).fit(X, y)
        assert model.multilabel_
        predicted = model.predict(X)
        expected = model.decision_function(X) >= model.threshold_
        np.testing.assert_array_equal(predicted.toarray(), expected)
        probabilities = model.predict_proba(X)
        assert ((probabilities >= 0) & (probabilities <= 1)).all()
        truth = np.array([[name in own for name in model.classes_] for own in y])
        hits = (predicted.toarray() & truth).sum()
        assert 2 * hits / (predicted.sum() + truth.sum()) > 0.8
        assert model.score(X, y) == np.mean((predicted.toarray() == truth).all(axis=1))


@pytest.mark.parametrize("k", [1, 5, 19, 20, 21, 40, 100])
def test_the_best_labels_and_their_scores(case, k):
    X, _, model = case
    labels, scores = model.predict_topk(X, k)
    assert labels.shape == scores.shape == (500, min(k, N_LABELS))
    assert (np.diff(scores, axis=1) <= 0).all()
    assert all(len(set(row)) == len(row) for row in labels.tolist())
    everything = model.decision_function(X)
    own = np.take_along_axis(everything, ids_of(model, labels), axis=1)
    np.testing.assert_allclose(scores, own, rtol=1e-4, atol=1e-4)
    if not model.model_.label_weights.n_candidates < k < N_LABELS:  # else, of some other labels
        best = -np.sort(-everything, axis=1)[:, :k]
        np.testing.assert_allclose(scores, best, rtol=1e-4, atol=1e-4)
    # The best label does not depend on how many are asked for.
    np.testing.assert_array_equal(labels[:, 0], model.predict_topk(X, 1)[0][:, 0])


@pytest.mark.parametrize(("bucket_size", "n_trellises"), [(1, 1), (4, 2)])
def test_labels_that_are_no_candidates_rank_below_them(
    one, several, monkeypatch, bucket_size, n_trellises
):
    # The search for candidates is exact with one trellis, and with few buckets.
    monkeypatch.setattr(training, "_CANDIDATES", {False: 6, True: 6})
    for X, y in (one, several):
        model = estimator(bucket_size=bucket_size, n_trellises=n_trellises).fit(X, y)
        assert model.model_.label_weights.n_candidates == 6
        candidates, _ = model.model_.candidates(X, 6, None)
        expected = np.sort(model.classes_[candidates], axis=1)
        for k in (6, 7, 40):
            labels, scores = model.predict_topk(X, k)
            np.testing.assert_array_equal(np.sort(labels[:, :6], axis=1), expected)
            np.testing.assert_array_equal(labels[:, :6], model.predict_topk(X, 6)[0])
            np.testing.assert_array_equal(labels[:, :2], model.predict_topk(X, 2)[0])
            assert (np.diff(scores, axis=1) <= 0).all()
            everything = model.decision_function(X)
            own = np.take_along_axis(everything, ids_of(model, labels), axis=1)
            np.testing.assert_allclose(scores, own, rtol=1e-4, atol=1e-4)
            np.testing.assert_array_equal(model.predictor(k)(X)[0], labels)
        if model.multilabel_:
            expected = model.decision_function(X) >= model.threshold_
            np.testing.assert_array_equal(model.predict(X).toarray(), expected)


@pytest.mark.parametrize("k", [1, 5, 40])
def test_the_predictor_predicts_the_same(case, k):
    X, _, model = case
    labels, scores = model.predict_topk(X, k)
    predictor = model.predictor(k)
    found, found_scores = predictor(X)
    np.testing.assert_array_equal(found, labels)
    np.testing.assert_allclose(found_scores, scores, rtol=1e-5, atol=1e-6)
    for row in (0, 17, 499):
        one_row = X[[row]]
        for given in ((one_row.indices, one_row.data), (one_row.indices.tolist(), one_row.data)):
            found, found_scores = predictor(*given)
            np.testing.assert_array_equal(found, labels[row])
            np.testing.assert_allclose(found_scores, scores[row], rtol=1e-5, atol=1e-6)


def test_a_predictor_is_a_snapshot(one):
    X, y = one
    model = estimator().fit(X, y)
    predictor, before = model.predictor(3), model.predict_topk(X, 3)
    model.partial_fit(X[:50], ["other"] * 50)
    labels, scores = predictor(X)
    np.testing.assert_array_equal(labels, before[0])
    np.testing.assert_allclose(scores, before[1], rtol=1e-5)


def test_probabilities_of_the_best_labels(case, monkeypatch):
    X, _, model = case
    everything = model.predict_proba(X)
    best = -np.sort(-everything, axis=1)[:, :3]
    labels, probabilities = model.predict_topk(X, 3, proba=True)
    own = np.take_along_axis(everything, ids_of(model, labels), axis=1)
    np.testing.assert_allclose(probabilities, own, rtol=1e-5)
    np.testing.assert_allclose(probabilities, best, rtol=1e-5)
    assert (np.diff(probabilities, axis=1) <= 0).all()
    # If labels are many, they are those among the candidates.
    monkeypatch.setattr("ltls.model.fitted._MANY_LABELS", 10)
    among, shares = model.predict_topk(X, 3, proba=True)
    np.testing.assert_array_equal(among, labels)
    np.testing.assert_allclose(shares, probabilities, rtol=1e-2, atol=1e-3)


def test_log_probabilities_of_labels_that_share_paths(one):
    X, y = one
    model = estimator().fit(X, y)
    own = ids_of(model, y)
    expected = np.log(model.predict_proba(X)[np.arange(500), own])
    np.testing.assert_allclose(model.log_proba(X, y), expected, rtol=1e-4, atol=1e-5)


def test_dense_rows(one, several):
    for X, y in (one, several):
        for bucket_size in (1, 4):
            settings = {"bucket_size": bucket_size, "normalize": True}
            sparse = estimator(**settings).fit(X, y)
            dense = estimator(**settings).fit(X.toarray(), y)
            assert_same_label_weights(sparse, dense)
            np.testing.assert_array_equal(
                sparse.predict_topk(X, 3)[0], dense.predict_topk(X.toarray(), 3)[0]
            )
    unscaled = estimator().fit(one[0].toarray(), one[1])
    assert not unscaled.model_.label_weights.unit_length
    assert unscaled.score(one[0].toarray(), one[1]) > 0.9


def test_rows_of_no_features(case):
    X, _, model = case
    empty = csr_array((3, X.shape[1]), dtype=np.float32)
    assert model.predict_topk(empty, 3)[0].shape == (3, 3)
    assert model.decision_function(empty).shape == (3, N_LABELS)


# Files and copies


@pytest.mark.parametrize("mmap", [True, False])
def test_a_loaded_model_predicts_the_same(case, tmp_path, mmap):
    X, _, model = case
    path = tmp_path / "model.ltls"
    model.save(path)
    loaded = ltls.load(path, mmap=mmap, verify=True)
    assert_same_label_weights(model, loaded)
    assert [book.path_of(np.arange(N_LABELS)).tolist() for book in loaded.codebooks_] == [
        book.path_of(np.arange(N_LABELS)).tolist() for book in model.codebooks_
    ]
    assert loaded.get_params() == model.get_params()
    assert loaded.model_.threshold == model.model_.threshold
    agree = loaded.predict_topk(X, 1)[0] == model.predict_topk(X, 1)[0]
    assert agree.mean() > 0.98  # the trellises are rounded to int8
    np.testing.assert_array_equal(loaded.predictor(2)(X)[0], loaded.predict_topk(X, 2)[0])
    again = tmp_path / "again.ltls"
    loaded.save(again)
    for ours, theirs in zip(
        loaded.predict_topk(X, 4), ltls.load(again).predict_topk(X, 4), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_float32_files_predict_the_same_exactly(case, tmp_path):
    X, _, model = case
    model.save(tmp_path / "model.ltls", dtype="float32")
    same(model, ltls.load(tmp_path / "model.ltls"), X)


def test_describe(case, tmp_path):
    _, _, model = case
    model.save(tmp_path / "model.ltls")
    facts = describe(tmp_path / "model.ltls")
    assert facts["classes"] == N_LABELS
    assert facts["paths"] == model.trellis_.n_classes
    assert facts["label_weights"] == len(model.model_.label_weights.values)
    assert facts["codebook"] == ("buckets" if model.bucket_size > 1 else "random")
    assert facts["parameters"]["bucket_size"] == model.bucket_size


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, copy.copy, lambda model: pickle.loads(pickle.dumps(model))]
)
def test_copies_predict_the_same(case, duplicate):
    X, _, model = case
    same(model, duplicate(model), X)


def test_clones(case):
    X, y, model = case
    new = clone(model)
    assert not hasattr(new, "model_")
    assert new.get_params() == model.get_params()
    same(model, new.fit(X, y), X)


def test_cross_validation(one):
    X, y = one
    assert cross_val_score(estimator(), X, y, cv=2).mean() > 0.6


# Training


def test_results_do_not_depend_on_n_jobs(case):
    X, y, model = case
    two = clone(model).set_params(n_jobs=2).fit(X, y)
    same(model, two, X)
    for method in ("predict_proba", "decision_function"):
        ours, theirs = getattr(model, method)(X), getattr(two, method)(X)
        np.testing.assert_array_equal(ours, theirs)


def test_results_do_not_depend_on_the_instruction_set(one):
    X, y = one
    scores = []
    for name in _engine.instruction_sets():
        previous = _engine.use_instruction_set(name)
        try:
            scores.append(estimator().fit(X, y).score(X, y))
        finally:
            _engine.use_instruction_set(previous)
    np.testing.assert_allclose(scores, scores[0], atol=0.01)


def test_partial_fit_with_known_labels(case):
    X, y, model = case
    model = copy.deepcopy(model)
    before = model.label_coef_.toarray()
    threshold = model.model_.threshold
    for _ in range(3):
        model.partial_fit(X, y)
    assert (model.label_coef_.toarray() != before).any()
    assert model.model_.threshold == threshold
    assert model.classes_.shape == (N_LABELS,)
    found = [
        a in np.atleast_1d(b) for a, b in zip(model.predict_topk(X, 1)[0][:, 0], y, strict=True)
    ]
    assert np.mean(found) > 0.95


@pytest.mark.parametrize("loaded", [False, True], ids=["", "loaded"])
def test_partial_fit_with_new_labels(case, tmp_path, loaded):
    X, _, model = case
    model = copy.deepcopy(model)
    if loaded:
        model.save(tmp_path / "model.ltls")
        model = ltls.load(tmp_path / "model.ltls")
    rng = np.random.default_rng(0)
    prototypes = rng.random((3, 60)) * (rng.random((3, 60)) < 0.2)
    new = rng.integers(0, 3, 60)
    rows = csr_matrix((prototypes[new] + 0.02 * rng.random((60, 60))).astype(np.float32))
    names = [f"new {label}" for label in new]
    names = [[name] for name in names] if model.multilabel_ else names
    for _ in range(4):
        model.partial_fit(rows, names, classes=["never seen"])
    assert len(model.classes_) == N_LABELS + 4
    assert model.label_coef_.shape == (N_LABELS + 4, 60)
    for book in model.codebooks_:
        assert (book.path_of(np.arange(N_LABELS + 4)) >= 0).all()
    best = model.predict_topk(rows, 1)[0][:, 0]
    assert (best == [np.atleast_1d(name)[0] for name in names]).mean() > 0.9
    assert model.predict_topk(X, N_LABELS + 4)[0].shape == (500, N_LABELS + 4)
    assert model.decision_function(X).shape == (500, N_LABELS + 4)
    np.testing.assert_array_equal(model.predictor(2)(X)[0], model.predict_topk(X, 2)[0])
    model.save(tmp_path / "model.ltls")
    assert ltls.load(tmp_path / "model.ltls").classes_.tolist() == model.classes_.tolist()


@pytest.mark.parametrize("bucket_size", [1, 4])
def test_few_of_many_features(one, several, bucket_size, tmp_path):
    n_features, used = 2**20, np.sort(np.random.default_rng(0).permutation(2**20)[:60])
    for X, y in (one, several):
        few = csr_array((X.data, used[X.indices], X.indptr), shape=(500, n_features))
        model = estimator(bucket_size=bucket_size).fit(few, y)
        plain = estimator(bucket_size=bucket_size).fit(X, y)
        assert model.label_coef_.shape == (N_LABELS, n_features)
        np.testing.assert_array_equal(model.predict_topk(few, 3)[0], plain.predict_topk(X, 3)[0])
        model.save(tmp_path / "model.ltls")
        loaded = ltls.load(tmp_path / "model.ltls")
        assert_same_label_weights_sparse(model, loaded)
        # New features arrive: they get weights, and those of the others stay where they are.
        extra = csr_array((few.data, (few.indices + 7) % n_features, few.indptr), shape=few.shape)
        extra.sort_indices()
        for grown in (model, loaded):
            grown.partial_fit(extra, y)
            grown.partial_fit(extra, y)
            assert grown.label_coef_.shape == (N_LABELS, n_features)
            columns = set(grown.label_coef_.indices.tolist())
            assert columns & {(column + 7) % n_features for column in used.tolist()}
            best = grown.predict_topk(extra, 1)[0][:, 0]
            found = [a in np.atleast_1d(b) for a, b in zip(best, y, strict=True)]
            assert np.mean(found) > 0.8
            np.testing.assert_array_equal(
                grown.predictor(2)(extra)[0], grown.predict_topk(extra, 2)[0]
            )


def assert_same_label_weights_sparse(model, other):
    assert (model.label_coef_ != other.label_coef_).nnz == 0
    np.testing.assert_array_equal(model.label_intercept_, other.label_intercept_)


@pytest.mark.parametrize("bucket_size", [1, 4])
def test_fit_stream(one, several, bucket_size, tmp_path):
    for X, y in (one, several):
        model = estimator(bucket_size=bucket_size).fit_stream(in_batches(X, y))
        assert model.model_.shares_paths == (bucket_size > 1)
        assert model.label_coef_.shape == (N_LABELS, 60)
        best = model.predict_topk(X, 1)[0][:, 0]
        found = [a in np.atleast_1d(b) for a, b in zip(best, y, strict=True)]
        assert np.mean(found) > 0.9
        same(model, estimator(bucket_size=bucket_size).fit_stream(in_batches(X, y)), X)
        if model.multilabel_:
            predicted = model.predict(X).toarray()
            np.testing.assert_array_equal(predicted, model.decision_function(X) >= model.threshold_)


@pytest.mark.parametrize("stream", [False, True], ids=["fit", "fit_stream"])
def test_resuming_is_bit_identical(case, tmp_path, stream):
    X, y, _ = case

    def train(epochs, checkpoint=None):
        model = estimator(bucket_size=case[2].bucket_size, epochs=epochs)
        if stream:
            return model.fit_stream(in_batches(X, y), checkpoint=checkpoint)
        return model.fit(X, y, checkpoint=checkpoint)

    whole, path = train(4), tmp_path / "run.checkpoint"
    train(2, path)
    resume = Checkpoint(path, resume=True)
    resumed = train(4, resume)
    assert resume.completed
    same(whole, resumed, X)
    whole.save(tmp_path / "whole")
    resumed.save(tmp_path / "resumed")
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "resumed").read_bytes()


def test_warm_start_trains_the_label_weights_anew(case):
    X, y, model = case
    model = copy.deepcopy(model).set_params(warm_start=True)
    before = copy.deepcopy(model)
    books = [book.path_of(np.arange(N_LABELS)).tolist() for book in model.codebooks_]
    model.model_.threshold = 1e9 if model.multilabel_ else None
    model.fit(X, y)
    assert [book.path_of(np.arange(N_LABELS)).tolist() for book in model.codebooks_] == books
    assert model.label_coef_.shape == before.label_coef_.shape
    found = [
        a in np.atleast_1d(b) for a, b in zip(model.predict_topk(X, 1)[0][:, 0], y, strict=True)
    ]
    assert np.mean(found) > 0.95
    if model.multilabel_:
        assert model.threshold_ < 1e9


@pytest.mark.parametrize("label_weights", [False, True])
def test_warm_start_chooses_the_threshold_anew(several, label_weights):
    X, y = several
    settings = {"label_weights": label_weights, "bucket_size": 1, "warm_start": True}
    model = estimator(**settings).fit(X, y)
    model.threshold_ = 1e9
    assert model.fit(X, y).threshold_ < 100


def test_rows_of_weight_0_are_not_learned(one):
    X, y = one
    wrong = [f"label {(int(name.split()[1]) + 1) % N_LABELS}" for name in y]
    rows = csr_matrix(np.vstack([X.toarray()] * 3))
    names = [*y, *wrong, *wrong]
    model = estimator().fit(rows, names, sample_weight=[1.0] * 500 + [0.0] * 1000)
    assert model.score(X, y) > 0.9
    assert estimator().fit(rows, names).score(X, y) < 0.5


@pytest.mark.parametrize("stream", [False, True], ids=["fit", "fit_stream"])
def test_class_weights_move_the_label_weights(one, stream):
    X, y = one
    heavy = "label 3"

    def train(class_weight):
        model = estimator(class_weight=class_weight)
        return model.fit_stream(in_batches(X, y)) if stream else model.fit(X, y)

    plain, weighted = train(None), train({heavy: 20.0})
    at = ids_of(plain, [heavy])[0]
    # A row of it counts more than those of other labels.
    moved = weighted.label_coef_.toarray()[at] - plain.label_coef_.toarray()[at]
    assert np.abs(moved).max() > 0.1
    own = np.array(y) == heavy
    assert (weighted.predict(X)[own] == heavy).all()
    balanced = train("balanced")
    assert balanced.score(X, y) > 0.9


def test_arguments_that_contradict_each_other_are_rejected(one):
    X, y = one
    with pytest.raises(ValueError, match="bucket_size=4 needs label_weights=True"):
        estimator(label_weights=False).fit(X, y)
    with pytest.raises(ValueError, match=r"bucket_size=4 .* takes no assignment, got 'ranking'"):
        estimator(assignment="ranking").fit(X, y)
    with pytest.raises(ValueError, match=r"embedding_dim=8 needs .* bucket_size=1"):
        estimator(embedding_dim=8).fit(X, y)
    for name, value in (("bucket_size", 4), ("label_weights", True)):
        settings = {"bucket_size": "auto", "label_weights": "auto"} | {name: value}
        with pytest.raises(ValueError, match=f"{name}={value} needs all rows at once: call fit"):
            estimator(**settings).partial_fit(X, y)
    for name, value in (("bucket_size", 0), ("bucket_size", 1.5), ("label_weights", "yes")):
        with pytest.raises(ValueError, match=name):
            estimator(**{name: value}).fit(X, y)


# Failures and interruptions


class Stop(BaseException):
    """Handled nowhere."""


def stop_training(monkeypatch, error, at_call):
    """Raise an error when the training of label weights looks at the time for the nth time.

    It does once for the candidates, then before every label and at the end.
    """
    calls = 0

    def check_time():
        nonlocal calls
        calls += 1
        if calls == at_call:
            raise error

    monkeypatch.setattr(training, "check_time", check_time)
    monkeypatch.setattr(training, "_SECONDS", 0.0)
    return lambda: calls


@pytest.mark.parametrize("at_call", [1, 5, 20])
def test_a_failed_fit_leaves_the_estimator_as_it_was(case, monkeypatch, at_call):
    X, y, model = case
    model, before = copy.deepcopy(model), copy.deepcopy(model)
    stop_training(monkeypatch, Stop(), at_call if model.multilabel_ else min(at_call, 10))
    for warm_start in (False, True):
        model.set_params(warm_start=warm_start)
        with pytest.raises(Stop):
            model.fit(X[:300], y[:300])
        same(before, model, X)
        stop_training(monkeypatch, Stop(), 2)


@pytest.mark.parametrize("at_call", [1, 2, 10, *range(N_LABELS + 1, N_LABELS + 5), 60])
@pytest.mark.parametrize("density", [0.5, 1.0])
def test_ctrl_c_during_the_training_of_label_weights(case, monkeypatch, at_call, density):
    X, y, model = case
    new = estimator(bucket_size=model.bucket_size, density=density)
    calls = stop_training(monkeypatch, KeyboardInterrupt(), at_call)
    if at_call > N_LABELS + 2 and not model.multilabel_:
        new.fit(X, y)
        assert calls() < at_call  # one training alone
        return
    with pytest.warns(TrainingInterruptedWarning) as caught:
        assert new.fit(X, y) is new
    assert len(caught) == 1
    assert new.n_iter_ >= 1
    assert new.predict_topk(X, 3)[0].shape == (500, 3)
    assert new.decision_function(X).shape == (500, N_LABELS)
    assert (np.count_nonzero(new.coef_) < 0.6 * new.coef_.size) == (density < 1)
    if new.multilabel_:
        assert np.isfinite(new.threshold_)
        assert new.predict(X).shape == (500, N_LABELS)


def test_ctrl_c_during_the_training_of_label_weights_of_a_clone_propagates(one, monkeypatch):
    stop_training(monkeypatch, KeyboardInterrupt(), 3)
    with pytest.raises(KeyboardInterrupt):
        clone(estimator()).fit(*one)


def test_ctrl_c_during_partial_fit_keeps_the_label_weights(case, monkeypatch):
    X, y, model = case
    model = copy.deepcopy(model)
    before = model.label_coef_.toarray()
    stop_training(monkeypatch, KeyboardInterrupt(), 3)
    with pytest.warns(TrainingInterruptedWarning):
        model.partial_fit(X, y)
    np.testing.assert_array_equal(model.label_coef_.toarray(), before)
    assert model.predict_topk(X, 3)[0].shape == (500, 3)


def test_label_weights_keep_time_limits(one, monkeypatch):
    X, y = one
    stopped = stop_training(monkeypatch, TimeLimitExceededError(), 4)
    with time_limit(1000), pytest.raises(TimeLimitExceededError):
        estimator().fit(X, y)
    assert stopped() == 4
