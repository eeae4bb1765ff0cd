"""Weights of LTLSClassifier against a reference learner that enumerates all paths."""

import numpy as np
import pytest
from comparison import (
    EPOCHS,
    MULTILABEL,
    N_FEATURES,
    N_ROWS,
    assert_same_model,
    assert_same_predictions,
    classifier,
    distance,
    draw,
    is_exact,
    plain_learner,
    settings_of,
    trained_both,
    with_each_loss,
    with_each_optimizer,
    with_each_size,
)
from reference_learner import ReferenceLearner
from scipy.sparse import random as sparse_random

from ltls import LTLSClassifier, TableCodebook
from ltls.settings import Trellises

# The losses of the reference itself.


@with_each_loss
@MULTILABEL
def test_the_reference_step_is_minus_the_gradient_of_its_loss(loss, multilabel):
    rng = np.random.default_rng(5)
    learner = ReferenceLearner(13, 1, 3, loss=loss, multilabel=multilabel, paths=range(13))
    h = rng.normal(size=len(learner.graph.edges)).astype(np.float32)
    positive = [2, 7, 11] if multilabel else [7]
    around = [
        [learner.loss((h + s * e).astype(np.float32), positive)[0] for s in (-0.01, 0.01)]
        for e in np.eye(len(h))
    ]
    gradient = [(above - below) / 0.02 for below, above in around]
    loss, step = learner.loss(h, positive)
    assert loss > 0
    np.testing.assert_allclose(step, np.negative(gradient), atol=1e-3)


# The same weights.


@pytest.mark.parametrize("paths", [None, "given"], ids=["ranking", "given"])
@pytest.mark.parametrize("batch_size", [2, 7, 1000])
@with_each_optimizer
@with_each_loss
@MULTILABEL
def test_mini_batches_give_the_weights_of_the_reference(
    multilabel, loss, optimizer, batch_size, paths
):
    parameters = settings_of(loss, optimizer, False, False)
    parameters |= {"width": 3, "ranking_multiplier": 22, "batch_size": batch_size}
    if paths is not None:
        paths = np.random.default_rng(0).permutation(22)
    model, reference, X = trained_both(22, multilabel, paths=paths, **parameters)
    assert_same_model(model, reference)
    assert_same_predictions(model, reference, X[:30], 4)


@pytest.mark.parametrize("n_trellises", [1, 3])
@pytest.mark.parametrize("assignment", ["random", "ranking"])
@pytest.mark.parametrize("batch_size", [1, 5, 64])
def test_threads_that_share_mini_batches_change_nothing(batch_size, assignment, n_trellises):
    rng = np.random.default_rng(3)
    X = sparse_random(400, 60, 0.2, "csr", np.float32, rng)
    y = rng.integers(30, size=400)

    def model(n_jobs):
        shape = {"width": 3, "n_trellises": n_trellises, "assignment": assignment}
        how = {"batch_size": batch_size, "average": True, "epochs": 2, "dtype": "float32"}
        given = {"trellises": Trellises(**shape, **how), "random_state": 0}
        return LTLSClassifier(n_jobs=n_jobs, **given).fit(X, y)

    one = model(None)
    for n_jobs in (2, 3):
        other = model(n_jobs)
        np.testing.assert_array_equal(other.coef_, one.coef_)
        assert other.loss_curve_ == one.loss_curve_


def test_mini_batches_are_as_accurate_as_single_rows():
    rng = np.random.default_rng(4)
    centers = sparse_random(200, 500, 0.04, "csr", np.float32, rng)
    y = rng.integers(200, size=6000)
    X = (centers[y] + sparse_random(6000, 500, 0.02, "csr", np.float32, rng)).tocsr()

    def precision(batch_size):
        given = Trellises(width=2, n_trellises=1, epochs=3, batch_size=batch_size)
        model = LTLSClassifier(trellises=given, label_weights=False, random_state=0)
        return model.fit(X[:5000], y[:5000]).score(X[5000:], y[5000:])

    alone = precision(1)
    assert 0.3 < alone < 0.99
    assert precision(32) > alone - 0.02


@pytest.mark.parametrize("l1", [False, True], ids=["", "l1"])
@pytest.mark.parametrize("average", [False, True], ids=["", "average"])
@with_each_optimizer
@with_each_loss
@MULTILABEL
@with_each_size
def test_weights_and_predictions_are_those_of_the_reference(
    n_classes, width, multilabel, loss, optimizer, average, l1
):
    parameters = settings_of(loss, optimizer, average, l1) | {"width": width}
    paths = np.random.default_rng(n_classes).permutation(n_classes)
    model, reference, X = trained_both(n_classes, multilabel, paths=paths, **parameters)
    np.testing.assert_array_equal(model.classes_, np.arange(n_classes))
    assert model.coef_.shape == (model.trellis_.n_edges, N_FEATURES)
    assert model.coef_.dtype == model.intercept_.dtype == np.float32
    assert model.n_iter_ == EPOCHS
    assert_same_model(model, reference)
    assert_same_predictions(model, reference, X[:30], 4)


@pytest.mark.parametrize(("average", "l1"), [(False, False), (True, True)], ids=["", "average-l1"])
@with_each_optimizer
@with_each_loss
@MULTILABEL
@with_each_size
def test_ranking_assigns_the_paths_of_the_reference(
    n_classes, width, multilabel, loss, optimizer, average, l1
):
    parameters = settings_of(loss, optimizer, average, l1)
    parameters |= {"width": width, "ranking_multiplier": n_classes}
    model, reference, X = trained_both(n_classes, multilabel, **parameters)
    assert model.codebooks_[0] == TableCodebook(n_classes, reference.paths)
    assert_same_model(model, reference)
    assert_same_predictions(model, reference, X[:30], 4)


@pytest.mark.parametrize("multiplier", [1, 2])
@MULTILABEL
@with_each_size
def test_ranking_considers_only_a_few_paths(n_classes, width, multilabel, multiplier):
    parameters = settings_of("separation", "sgd", average=True)
    parameters |= {"width": width, "ranking_multiplier": multiplier, "multilabel": multilabel}
    X, labels = draw(0, n_classes, multilabel, exact=True)
    X = X[np.arange(N_ROWS) % 2]  # two distinct rows: their best paths are soon taken
    model = classifier(X, labels, assignment="ranking", **parameters)
    (book,) = model.codebooks_
    reference = ReferenceLearner(n_classes, N_FEATURES, hint=book.path_of, **parameters)
    reference.fit(X, labels, epochs=EPOCHS)
    assert 0 < len(reference.open_choices) < n_classes - 3
    assert model.codebooks_[0] == TableCodebook(n_classes, reference.paths)
    assert_same_model(model, reference)


@MULTILABEL
def test_labels_without_training_rows_take_the_remaining_paths(multilabel):
    X, labels = draw(0, 22, multilabel)
    weights = [float(not {3, 4, 17} & set(some)) for some in labels]
    model = classifier(
        X, labels, multilabel=multilabel, sample_weight=weights, assignment="ranking"
    )
    assert sorted(model.codebooks_[0].path_of(np.arange(22))) == list(range(22))


@with_each_size
def test_exact_ties_go_to_the_smaller_path(n_classes, width):
    parameters = settings_of("separation", "sgd") | {"width": width}
    paths = np.random.default_rng(1).permutation(n_classes)
    model, reference, X = trained_both(n_classes, False, paths=paths, **parameters)
    np.testing.assert_array_equal(model.coef_, reference.coef)
    for k in (1, 3, n_classes):
        expected_labels, expected_scores = reference.topk(X, k)
        labels, scores = model.predict_topk(X, k)
        np.testing.assert_array_equal(labels, expected_labels)
        np.testing.assert_array_equal(scores, expected_scores)
    assert (np.diff(expected_scores) == 0).any()
    np.testing.assert_array_equal(model.predict(X), reference.topk(X, 1)[0][:, 0])


@with_each_loss
def test_without_intercept(loss):
    parameters = settings_of(loss, "adagrad") | {"fit_intercept": False}
    model, reference, _ = trained_both(22, False, paths=range(22), **parameters)
    np.testing.assert_array_equal(model.intercept_, np.zeros(19))
    assert_same_model(model, reference)


@with_each_loss
@MULTILABEL
def test_the_l1_threshold_applies_from_the_second_epoch_on(loss, multilabel):
    parameters = settings_of(loss, "sgd", l1=True)
    X, labels = draw(0, 22, multilabel, is_exact(loss, "sgd"))
    codebook = TableCodebook(22, range(22))

    def weights(l1, epochs):
        model = classifier(
            X,
            labels,
            multilabel=multilabel,
            assignment=codebook,
            **parameters | {"l1": l1, "epochs": epochs},
        )
        return np.column_stack([model.coef_, model.intercept_])

    def thresholded(some, l1):
        return np.sign(some) * np.maximum(np.abs(some) - l1, 0)

    l1 = parameters["l1"]
    after_one, after_two = weights(0.0, 1), weights(0.0, 2)
    np.testing.assert_allclose(weights(l1, 1), thresholded(after_one, l1), atol=1e-6)
    assert distance(weights(l1, 2), thresholded(after_two, l1)) > 1e-3


# Weights of rows.


@pytest.mark.parametrize("average", [False, True], ids=["", "average"])
@with_each_optimizer
@with_each_loss
@MULTILABEL
def test_sample_weight(multilabel, loss, optimizer, average):
    weights = np.random.default_rng(3).integers(0, 5, N_ROWS) / 2
    assert (weights == 0).any()
    parameters = settings_of(loss, optimizer, average) | {"sample_weight": weights}
    model, reference, _ = trained_both(22, multilabel, paths=range(22), **parameters)
    assert_same_model(model, reference)


@pytest.mark.parametrize(
    "class_weight",
    [{c: 2.0 ** (c % 3 - 1) for c in range(22)}, "balanced"],
    ids=["dict", "balanced"],
)
@with_each_optimizer
@with_each_loss
@MULTILABEL
def test_class_weight(multilabel, loss, optimizer, class_weight):
    parameters = settings_of(loss, optimizer) | {"class_weight": class_weight}
    model, reference, _ = trained_both(22, multilabel, paths=range(22), **parameters)
    assert_same_model(model, reference)


@MULTILABEL
def test_class_weight_and_sample_weight_are_multiplied(multilabel):
    model, reference, _ = trained_both(
        22,
        multilabel,
        paths=range(22),
        sample_weight=np.random.default_rng(4).integers(0, 5, N_ROWS) / 4,
        class_weight={c: (1 + c) / 16 for c in range(22)},
        **settings_of("softmax", "sgd"),
    )
    assert_same_model(model, reference)


def test_a_row_of_weight_0_is_a_step_of_the_average():
    X = np.array([[1.0], [1.0], [1.0]])
    y = [0, 1, 0]

    def weight_of_the_first_edge(sample_weight, average):
        model = plain_learner(TableCodebook(2, [0, 1]), average=average)
        return model.fit(X, y, sample_weight=sample_weight).coef_[0, 0]

    assert weight_of_the_first_edge([1, 0, 0], average=False) == 1
    assert weight_of_the_first_edge([1, 0, 0], average=True) == pytest.approx(3 / 4)
    assert weight_of_the_first_edge([0, 0, 1], average=True) == pytest.approx(1 / 4)


# Shuffling.


def test_a_shuffled_epoch_visits_every_row_once():
    X = np.eye(N_ROWS, dtype=np.float32)
    y = np.arange(N_ROWS) % 22

    def model(**changes):
        learner = plain_learner(TableCodebook(22, range(22))).set_params(random_state=0)
        return learner.set_params(**{f"trellises__{k}": v for k, v in changes.items()}).fit(X, y)

    # Every row has its own feature, so that the order has no effect without averaging.
    in_order, shuffled = model(shuffle=False), model(shuffle=True)
    np.testing.assert_array_equal(shuffled.coef_, in_order.coef_)
    # The average keeps 1 − turn / (N + 1) of the step of every row.
    averaged = model(shuffle=True, average=True)
    left = np.abs(averaged.coef_).max(axis=0)
    turns = (N_ROWS + 1) * (1 - left)
    np.testing.assert_allclose(np.sort(turns), np.arange(1, N_ROWS + 1), atol=1e-3)
    assert (np.diff(turns) < 0).any()
