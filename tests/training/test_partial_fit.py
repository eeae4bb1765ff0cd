"""partial_fit: new labels get free paths, the trellis grows, free paths are never predicted.

Nothing is replayed here; `test_further` is about that.
"""

from itertools import pairwise

import numpy as np
import pytest
from comparison import trellises_only
from reference_learner import ReferenceLearner
from scipy.sparse import csr_matrix

from ltls.settings import Trellises

LOSSES = ["separation", "softmax", "logistic"]
POLICIES = ["ranking", "random", "frequency", "similarity"]
WIDTHS = [2, 3, 8]
N_FEATURES = 16

with_each_loss = pytest.mark.parametrize("loss", LOSSES)
with_each_policy = pytest.mark.parametrize("assignment", POLICIES)
with_each_width = pytest.mark.parametrize("width", WIDTHS)


def one_trellis(intercept=True, **settings):
    plain = {"width": 2, "n_trellises": 1, "learning_rate": 0.3, "average": False}
    given = Trellises(**{**plain, "dtype": "float32", **settings})
    return trellises_only(given, intercept, memory=False, random_state=0)


def paths_of_labels(model):
    return np.asarray(model.codebooks_[0].path_of(np.arange(len(model.classes_))))


def label_path_scores(model, X):
    """The score of every label's path, (N, labels), from the edges."""
    paths = np.tile(paths_of_labels(model), (len(X), 1))
    return model.trellis_.score(model.edge_scores(X), paths)


def assert_every_label_has_a_path_of_its_own(model):
    paths = paths_of_labels(model)
    assert paths.min() >= 0
    assert paths.max() < model.trellis_.n_classes
    assert len(set(paths.tolist())) == len(model.classes_)
    np.testing.assert_array_equal(model.codebooks_[0].label_of(paths), np.arange(len(paths)))
    assert model.codebooks_[0].n_paths == model.trellis_.n_classes
    assert model.coef_.shape == (model.trellis_.n_edges, model.n_features_in_)
    assert model.intercept_.shape == (model.trellis_.n_edges,)


def full_model(**parameters):
    """A model without free paths.

    Its rows have features 0 to 7 only and there is no intercept, so training on the other features
    changes none of their scores.
    """
    model = one_trellis(**parameters, intercept=False)
    rng = np.random.default_rng(0)
    X = np.zeros((6, N_FEATURES), np.float32)
    for label in range(1000):
        X[:, :8] = rng.normal(size=(6, 8))
        model.partial_fit(X, [label] * 6)
        if label >= 20 and model.trellis_.n_classes == label + 1:
            return model, X
    raise AssertionError("the trellis is never full")


# Classes.


def test_classes_are_in_order_of_appearance_and_follow_those_of_fit():
    model = one_trellis()
    model.partial_fit(np.eye(4), ["pear", "apple", "pear", "fig"])
    model.partial_fit(np.eye(4), ["banana", "fig", "a long name that must not be cut", "apple"])
    known = ["pear", "apple", "fig", "banana", "a long name that must not be cut"]
    assert list(model.classes_) == known
    model.fit(np.eye(4), [7, 3, 5, 3])
    fresh = one_trellis().fit(np.eye(4), [7, 3, 5, 3])
    np.testing.assert_array_equal(model.coef_, fresh.coef_)
    model.partial_fit(np.eye(4)[:3], [6, 4, 7])
    assert list(model.classes_) == [3, 5, 7, 6, 4]
    assert_every_label_has_a_path_of_its_own(model)


@with_each_policy
@with_each_loss
@with_each_width
def test_the_first_batch_may_hold_a_single_class(width, loss, assignment):
    model = one_trellis(width=width, loss=loss, assignment=assignment)
    model.partial_fit(np.eye(3), ["only"] * 3)
    assert list(model.classes_) == ["only"]
    assert list(model.predict(-np.eye(3))) == ["only"] * 3
    labels, scores = model.predict_topk(np.eye(3), 5)
    assert labels.tolist() == [["only"]] * 3
    assert scores.shape == (3, 1)


def test_multilabel_batches_add_labels():
    model = one_trellis(loss="logistic")
    model.partial_fit(np.eye(3), [["b"], [], ["b"]])
    assert list(model.classes_) == ["b"]
    assert model.multilabel_
    model.partial_fit(np.eye(3), [["c", "b"], ["a"], []])
    assert sorted(model.classes_[1:]) == ["a", "c"]
    assert model.classes_[0] == "b"
    for batch in range(20):
        model.partial_fit(np.eye(3), [[f"{batch} {i}" for i in range(5)], [], ["b"]])
    assert len(model.classes_) == 3 + 20 * 5
    assert_every_label_has_a_path_of_its_own(model)
    assert model.predict(np.eye(3)).shape == (3, 103)
    labels, _ = model.predict_topk(np.eye(3), 103)
    assert [sorted(row) for row in labels.tolist()] == [sorted(model.classes_)] * 3


# Growth.


@with_each_policy
@with_each_loss
@with_each_width
def test_labels_take_free_paths_and_then_the_trellis_grows(width, loss, assignment):
    model = one_trellis(width=width, loss=loss, assignment=assignment)
    rng = np.random.default_rng(1)
    sizes, old_paths = [], np.zeros(0, int)
    for label in range(70):
        model.partial_fit(rng.normal(size=(1, 4)), [label])
        paths = paths_of_labels(model)
        np.testing.assert_array_equal(paths[:-1], old_paths)
        assert_every_label_has_a_path_of_its_own(model)
        assert model.trellis_.width == width <= model.trellis_.n_classes
        sizes.append(model.trellis_.n_classes)
        old_paths = paths
    assert len(set(sizes)) > 2
    for n_labels, (before, after) in enumerate(pairwise(sizes), 1):
        assert (after > before) == (n_labels == before)
        if after > before:
            larger, _ = type(model.trellis_)(before, width).grow()
            assert after == larger.n_classes


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
@pytest.mark.parametrize("average", [False, True], ids=["", "average"])
@with_each_policy
@with_each_loss
@with_each_width
def test_growing_changes_no_score_of_an_old_label(width, loss, assignment, average, optimizer):
    parameters = {"width": width, "loss": loss, "assignment": assignment}
    parameters |= {"average": average, "optimizer": optimizer}
    # A row of weight 0 changes no weights but is a step of the average: both models get one.
    (as_it_was, X), (grown, _) = full_model(**parameters), full_model(**parameters)
    n_labels = len(as_it_was.classes_)
    as_it_was.partial_fit(X[:1], [0], sample_weight=[0])
    grown.partial_fit(X[:1], ["new"], sample_weight=[0])
    assert as_it_was.trellis_.n_classes == n_labels < grown.trellis_.n_classes
    assert list(grown.classes_) == [*range(n_labels), "new"]
    np.testing.assert_array_equal(paths_of_labels(grown)[:-1], paths_of_labels(as_it_was))
    scores = label_path_scores(as_it_was, X)
    assert np.abs(scores).max() > 0.1
    np.testing.assert_array_equal(label_path_scores(grown, X)[:, :n_labels], scores)


# Free paths.


@pytest.fixture(
    scope="module",
    params=[(width, loss) for width in WIDTHS for loss in LOSSES],
    ids="width {0[0]}, {0[1]}".format,
)
def half_full(request):
    """A model with many free paths, and rows for which free paths score best."""
    width, loss = request.param
    model = one_trellis(width=width, loss=loss)
    rng = np.random.default_rng(2)
    n_labels = {2: 18, 3: 30, 8: 65}[width]  # soon after a slice was added
    for label in range(n_labels):
        model.partial_fit(rng.normal(size=(5, N_FEATURES)), [f"label {label}"] * 5)
    assert model.trellis_.n_classes > 1.5 * n_labels
    known = paths_of_labels(model)
    path_weights = model.trellis_.matrix() @ model.coef_
    towards_free = np.delete(path_weights - path_weights[known].mean(axis=0), known, axis=0)
    X = np.repeat(towards_free, 20, axis=0)
    X = (X + rng.normal(scale=np.abs(X).mean() / 2, size=X.shape)).astype(np.float32)
    best, _ = model.trellis_.viterbi(model.edge_scores(X))
    X = X[~np.isin(best, known)]
    assert len(X) > 20
    return model, X


@pytest.mark.parametrize("k", [2, 5, 10_000])
def test_topk_skips_free_paths(half_full, k):
    model, X = half_full
    labels, scores = model.predict_topk(X, k)
    n_labels = len(model.classes_)
    assert labels.shape == scores.shape == (len(X), min(k, n_labels))
    assert set(labels.ravel()) <= set(model.classes_)
    assert all(len(set(row)) == len(row) for row in labels.tolist())
    np.testing.assert_array_equal(model.predict(X), labels[:, 0])
    expected = -np.sort(-model.decision_function(X))[:, :k]
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-4)


def test_scores_of_labels_are_those_of_their_paths(half_full):
    model, X = half_full
    scores, h = label_path_scores(model, X), model.edge_scores(X)
    loss, width = model.trellises.loss, model.trellises.width
    if loss == "softmax":
        scores = scores - model.trellis_.log_partition(h)[:, None]
    if loss == "logistic":
        slow = ReferenceLearner(model.trellis_.n_classes, N_FEATURES, width, loss="logistic")
        scores = np.array([slow.decode(row) for row in h])[:, paths_of_labels(model)]
    np.testing.assert_allclose(model.decision_function(X), scores, rtol=1e-5, atol=1e-4)


# The same training steps.


@pytest.mark.parametrize("average", [False, True], ids=["", "average"])
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
@with_each_loss
def test_successive_batches_give_the_weights_of_the_reference(loss, optimizer, average):
    parameters = {"loss": loss, "optimizer": optimizer, "average": average, "learning_rate": 0.5}
    model = one_trellis(width=3, shuffle=False, **parameters)
    rng = np.random.default_rng(4)
    X = rng.normal(size=(60, 6)).astype(np.float32)
    y = np.r_[np.arange(11), rng.integers(0, 11, 49)]
    # Ten labels are added first, so that free paths are left.
    batches = [slice(i, i + 1) for i in range(10)] + [slice(0, 20), slice(20, 21), slice(21, 60)]
    weights = [[0.0]] * 10 + [None] * 3
    for batch, weight in zip(batches, weights, strict=True):
        model.partial_fit(X[batch], y[batch], sample_weight=weight)
    assert model.trellis_.n_classes > 11
    slow = ReferenceLearner(
        model.trellis_.n_classes, 6, 3, paths=paths_of_labels(model), **parameters
    )
    for batch, weight in zip(batches, weights, strict=True):
        slow.fit(X[batch], [[label] for label in y[batch]], weight)
    np.testing.assert_allclose(model.coef_, slow.coef, atol=1e-5 * np.abs(slow.coef).max())
    np.testing.assert_allclose(model.intercept_, slow.intercept, atol=1e-5)


# Many classes, one by one and then a few at a time.


@pytest.mark.parametrize(
    ("width", "loss", "assignment"),
    [(2, "softmax", "random"), (3, "separation", "ranking"), (8, "logistic", "similarity")],
)
def test_thousands_of_classes(width, loss, assignment):
    n_classes = 1500
    X = csr_matrix(np.random.default_rng(6).normal(size=(500, 8)).astype(np.float32))
    model = one_trellis(width=width, loss=loss, assignment=assignment)
    model.partial_fit(X[:2], ["class 0", "class 1"])
    for first in [*range(2, 400), *range(400, n_classes, 10)]:
        names = [f"class {label}" for label in range(first, first + (1 if first < 400 else 10))]
        model.partial_fit(X[first % 490 : first % 490 + len(names)], names)
    assert list(model.classes_) == [f"class {label}" for label in range(n_classes)]
    assert_every_label_has_a_path_of_its_own(model)
    assert model.trellis_.width == width
    names = set(model.classes_)
    assert set(model.predict(X)) <= names
    labels, scores = model.predict_topk(-X, 20)
    assert set(labels.ravel()) <= names
    assert all(len(set(row)) == 20 for row in labels.tolist())
    assert np.isfinite(scores).all()
