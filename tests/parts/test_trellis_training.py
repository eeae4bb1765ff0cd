"""Trellises while they are trained: learned codebooks, pruning, and the memory it takes."""

import re

import numpy as np
import pytest
import scipy.sparse as sp
from comparison import trellises_only
from sklearn.datasets import make_multilabel_classification

from ltls import LTLSClassifier, RandomCodebook, TableCodebook
from ltls.core.arrays import available_memory
from ltls.model.examples import Examples
from ltls.model.labels import as_targets
from ltls.parts.edge_weights import PrunedWeights, Weights
from ltls.settings import Trellises, Views
from ltls.structure.exchange import exchange_paths


def classifier(validation_fraction=0, **settings):
    """A single narrow trellis, which has the most to gain."""
    plain = {"width": 2, "n_trellises": 1, "epochs": 5, "learning_rate": 0.3, "average": False}
    given = {"validation_fraction": validation_fraction, "random_state": settings.pop("seed", 0)}
    given |= {"n_jobs": settings.pop("n_jobs", None), "warm_start": settings.pop("warm", False)}
    given["calibration"] = False
    return trellises_only(Trellises(**{**plain, "dtype": "float32", **settings}), **given)


def learned(validation_fraction=0, **settings):
    return classifier(validation_fraction, assignment="learned", **settings)


@pytest.fixture(scope="module")
def tags():
    """Multi-label rows of 40 labels, some without labels; a narrow trellis confuses many."""
    return make_multilabel_classification(
        600, n_features=30, n_classes=40, n_labels=4, random_state=0
    )


# Edge scores summed over the rows of labels


def examples_of(model, X, y, weights=None):
    fitted = model.model_
    return Examples.of(fitted.labels, fitted.columns.rows(X), as_targets(y), weights)


@pytest.mark.parametrize("loss", ["softmax", "logistic"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_batches", [1, 3])
def test_sums_over_the_training_rows(tags, loss, weighted, n_batches):
    X, Y = tags
    model = classifier(n_trellises=2, loss=loss, epochs=1).fit(X, Y)
    weights = np.random.default_rng(1).uniform(0, 2, len(X)).astype(np.float32)
    h, expected, batches = model.edge_scores(X), np.zeros((40, 2 * model.trellis_.n_edges)), []
    for part in np.array_split(np.arange(len(X)), n_batches):
        given = weights[part] if weighted else None
        batches.append((examples_of(model, X[part], Y[part], given), np.arange(0, len(part), 3)))
        for row in part[::3]:
            labels = np.flatnonzero(Y[row])
            share = weights[row] if weighted else 1
            for label in labels:
                expected[label] += h[row] * share / (len(labels) if loss == "softmax" else 1)
    sums = model.fitted_.training._label_score_sums(batches, None)
    assert sums.shape == (2, 40, model.trellis_.n_edges)
    np.testing.assert_allclose(np.hstack(list(sums)), expected, rtol=1e-3, atol=1e-3)


def test_exchanges_by_the_sums_lower_the_loss(digits):
    X, y = digits
    model = classifier(assignment=RandomCodebook(10, 1), epochs=1).fit(X, y)
    training, part = model.fitted_.training, model.model_.part("trellises")
    # Other paths than those the weights were trained for: there is much to gain.
    paths = np.random.default_rng(0).permutation(10)

    def loss(paths):
        part.codebooks[0] = TableCodebook(10, paths)
        part._predictors.clear()
        return -model.path_log_proba(X, y).mean()

    (sums,) = training._label_score_sums([(examples_of(model, X, y), np.arange(len(X)))], None)
    moved = exchange_paths(model.trellis_, sums, paths)
    assert sorted(moved) == list(range(10))
    assert loss(moved) < loss(paths) / 2


# assignment="learned": labels move to better paths between epochs


@pytest.mark.parametrize("loss", ["separation", "softmax", "logistic"])
@pytest.mark.parametrize("n_trellises", [1, 3])
def test_learned_codebooks_do_not_depend_on_n_jobs(tags, loss, n_trellises):
    X, Y = tags
    settings = {"loss": loss, "n_trellises": n_trellises}
    one, two = (learned(**settings, n_jobs=n_jobs).fit(X, Y) for n_jobs in (1, 2))
    np.testing.assert_array_equal(one.coef_, two.coef_)
    assert one.codebooks_ == two.codebooks_
    for book in one.codebooks_:
        assert sorted(book.paths) == list(range(40))


@pytest.mark.parametrize("stream", [False, True], ids=["fit", "fit_stream"])
def test_labels_move_only_between_epochs(tags, stream):
    X, Y = tags
    batches = [(X[i : i + 100], Y[i : i + 100]) for i in range(0, len(X), 100)]

    def fitted(model):
        return model.fit_stream(batches) if stream else model.fit(X, Y)

    start = fitted(classifier(assignment="similarity", epochs=1))
    once, twice = (fitted(learned(epochs=epochs)) for epochs in (1, 2))
    assert once.codebooks_ == start.codebooks_
    np.testing.assert_array_equal(once.coef_, start.coef_)
    assert twice.codebooks_ != start.codebooks_
    assert sorted(twice.codebooks_[0].paths) == list(range(40))


def skewed_tags(seed, n_rows=800, n_labels=60, n_features=80):
    """Rows with three labels each, a few of them frequent, and features that depend on them."""
    rng = np.random.default_rng(seed)
    frequency = 1 / np.arange(1, n_labels + 1)
    Y = np.zeros((n_rows, n_labels), int)
    for row in Y:
        row[rng.choice(n_labels, 3, replace=False, p=frequency / frequency.sum())] = 1
    X = Y @ rng.normal(size=(n_labels, n_features)) + rng.normal(size=(n_rows, n_features))
    return X / np.linalg.norm(X, axis=1, keepdims=True), Y


def test_learned_codebooks_help_a_narrow_trellis():
    def precision(assignment, seed):
        X, Y = skewed_tags(seed)
        model = classifier(assignment=assignment, seed=seed).fit(X[:500], Y[:500])
        best = model.predict_topk(X[500:], 1)[0][:, 0]
        return Y[np.arange(500, len(X)), best].mean()

    mean = {
        assignment: np.mean([precision(assignment, seed) for seed in range(6)])
        for assignment in ("random", "similarity", "learned")
    }
    assert mean["learned"] > mean["random"] + 0.02
    assert mean["learned"] > mean["similarity"] + 0.005


def same_weights(one, other):
    return np.array_equal(one.coef_, other.coef_)


def test_early_stopping_keeps_the_codebook_of_the_best_epoch(tags):
    X, Y = tags
    settings = {"n_trellises": 2, "n_iter_no_change": 12}
    model = learned(0.2, **settings, epochs=12).fit(X, Y)
    # The best epoch is the first after which more epochs no longer change the model.
    shorter = [learned(0.2, **settings, epochs=epochs).fit(X, Y) for epochs in range(1, 12)]
    best = next(i for i, other in enumerate(shorter) if same_weights(other, model))
    assert best > 0, "labels have not moved before the first epoch: this tests nothing"
    assert shorter[best].codebooks_ == model.codebooks_
    assert all(not same_weights(other, model) for other in shorter[:best])


@pytest.mark.parametrize("held_out", [0, 0.2])
def test_warm_start_continues_from_any_codebook(tags, held_out):
    X, Y = tags

    def precision(model):
        return Y[np.arange(len(X)), model.predict_topk(X, 1)[0][:, 0]].mean()

    model = classifier(held_out, warm=True).fit(X, Y)
    before, reached = model.codebooks_[0].path_of(range(40)), precision(model)
    model.set_params(trellises__assignment="learned").fit(X, Y)
    paths = model.codebooks_[0].path_of(range(40))
    assert sorted(paths) == list(range(40))
    assert held_out or (paths != before).any()
    # Weights belong to the codebook, whichever epoch was the best one.
    assert precision(model) > reached - 0.02


# Pruning


@pytest.fixture(scope="module")
def rows():
    """Rows of three own features per class, and noise."""
    rng = np.random.default_rng(0)
    y = rng.integers(30, size=1200)
    X = np.zeros((1200, 400), np.float32)
    X[np.arange(1200)[:, None], rng.integers(90, 400, (1200, 5))] = 0.5
    X[np.arange(1200)[:, None], 3 * y[:, None] + np.arange(3)] = 1
    return sp.csr_array(X), y


@pytest.mark.parametrize("stream", [False, True], ids=["fit", "fit_stream"])
def test_a_pruned_model_is_as_accurate_and_keeps_that_fraction(rows, stream):
    X, y = rows
    small = {"width": 4, "n_trellises": 2, "epochs": 4}
    batches = [(X[i : i + 250], y[i : i + 250]) for i in range(0, 1000, 250)]
    pruned, whole = (
        model.fit_stream(batches) if stream else model.fit(X[:1000], y[:1000])
        for model in (classifier(density=density, **small) for density in (0.1, 1.0))
    )
    weights = pruned.model_.part("trellises").weights
    assert isinstance(weights, PrunedWeights)
    assert isinstance(whole.model_.part("trellises").weights, Weights)
    assert weights.density == pytest.approx(0.1, rel=0.1)
    assert pruned.score(X[1000:], y[1000:]) >= whole.score(X[1000:], y[1000:]) - 0.02
    # Further training continues with all weights.
    for model in (pruned, whole):
        model.partial_fit(X[:50], y[:50])
    ours, theirs = (model.fitted_.training.weights.values for model in (pruned, whole))
    np.testing.assert_array_equal(ours, theirs)


# Memory


@pytest.mark.parametrize(
    ("method", "parts"),
    [("fit", {"views": False}), ("fit", {"views": Views(cluster_size=2)}), ("partial_fit", {})],
)
def test_too_many_weights_name_the_estimate_and_what_would_do(method, parts):
    if available_memory() is None:
        pytest.skip("the system does not say how much memory there is")
    given = Trellises(width=4096, n_trellises=65_000)
    estimator = LTLSClassifier(trellises=given, random_state=0, **parts)
    y = [f"label {i}" for i in range(8192)]
    X = sp.csr_array((np.ones(8192, np.float32), np.arange(8192) % 900, np.arange(8193)))
    with pytest.raises(MemoryError) as error:
        getattr(estimator, method)(X, y)
    message = str(error.value)
    assert re.search(r"training needs [\d.]+ GB for the weights of 900 features", message)
    assert re.search(r"n_trellises=\d+ would fit|use a smaller width", message)
    assert not hasattr(estimator, "model_")


def test_hashed_features_that_do_not_occur_take_no_memory():
    """2**30 columns, of which 300 occur: a matrix of weights for all would take terabytes."""
    rng = np.random.default_rng(0)
    y = rng.integers(20, size=1000)
    columns = rng.integers(0, 2**30, 300)
    own = columns[15 * y[:, None] + rng.integers(0, 15, (1000, 4))]
    own.sort(axis=1)
    ones = np.ones(4000, np.float32)
    X = sp.csr_array((ones, own.ravel(), np.arange(0, 4001, 4)), shape=(1000, 2**30))
    X.sum_duplicates()
    assert LTLSClassifier(random_state=0).fit(X, y).score(X, y) > 0.9
