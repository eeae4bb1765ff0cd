"""A fitted model that is built by hand: growing, and probabilities of a few or of many labels."""

import numpy as np
import pytest

from ltls import RandomCodebook, TableCodebook, Trellis
from ltls.linear.trainable import TrainableWeights
from ltls.linear.weights import Weights, aligned
from ltls.model import fitted
from ltls.model.embedding import Embedding
from ltls.model.fitted import FittedModel
from ltls.model.labels import Labels
from ltls.structure.losses import LOSSES
from ltls.training.calibration import usual_calibration

N_FEATURES = 6


def make_model(n_labels, n_trellises=2, loss="softmax", n_paths=None, multilabel=False, seed=0):
    """Return a model with random weights and codebooks."""
    rng = np.random.default_rng(seed)
    trellis = Trellis(n_paths or n_labels, 4)
    if n_paths is None:
        books = [RandomCodebook(n_labels, seed=r) for r in range(n_trellises)]
    else:
        tables = [rng.permutation(n_paths)[:n_labels] for _ in range(n_trellises)]
        books = [TableCodebook(n_paths, table) for table in tables]
    model = FittedModel(
        Labels(range(n_labels)), trellis, books, LOSSES[loss], 0.0, multilabel, "single"
    )
    model.trainable = TrainableWeights(
        trellis, n_trellises, N_FEATURES, intercept=True, unit_length=False, adagrad=True,
        average=False, settings={},
    )  # fmt: skip
    model.trainable.values[:] = rng.normal(size=model.trainable.values.shape)
    return model


def rows(n=7, seed=1):
    return np.random.default_rng(seed).normal(size=(n, N_FEATURES)).astype(np.float32)


def some_labels(n_labels, n_rows=7, n_columns=3, seed=2):
    return np.random.default_rng(seed).integers(n_labels, size=(n_rows, n_columns))


# Growing


@pytest.mark.parametrize("n_new", [1, 3, 40])
def test_new_labels_change_no_path_and_no_sum_of_edge_scores_of_an_old_one(n_new):
    model, X = make_model(10, loss="separation"), rows()
    before = model.all_scores(X, 1)
    paths = [book.path_of(np.arange(10)) for book in model.codebooks]
    model.add_labels([f"new {i}" for i in range(n_new)])
    assert model.labels.values[:11] == [*range(10), "new 0"]
    assert model.trellis.n_classes >= len(model.labels) == 10 + n_new
    np.testing.assert_allclose(model.all_scores(X, 1)[:, :10], before, rtol=1e-5, atol=1e-5)
    for book, old in zip(model.codebooks, paths, strict=True):
        assert book.n_paths == model.trellis.n_classes
        np.testing.assert_array_equal(book.path_of(np.arange(10)), old)
        assert len(set(book.path_of(np.arange(10 + n_new)).tolist())) == 10 + n_new


def test_no_new_label_changes_nothing():
    model = make_model(10)
    trellis, books = model.trellis, model.codebooks
    model.add_labels([])
    assert model.trellis is trellis
    assert model.codebooks is books
    assert len(model.labels) == 10


def test_free_paths_are_used_before_the_trellis_grows():
    model = make_model(10, n_paths=12)
    model.add_labels(["a", "b"])
    assert model.trellis.n_classes == 12
    model.add_labels(["c"])
    assert model.trellis.n_classes > 12


def test_a_trellis_that_cannot_grow_leaves_the_model_unchanged(monkeypatch):
    model, X = make_model(10), rows()
    before = model.all_scores(X, 1)

    def cannot_grow(self):
        raise ValueError("n_classes must be at most 2**62")

    monkeypatch.setattr(Trellis, "grow", cannot_grow)
    with pytest.raises(ValueError, match="at most"):
        model.add_labels(["new"])
    assert model.labels.values == list(range(10))
    np.testing.assert_array_equal(model.all_scores(X, 1), before)


# Probabilities


def test_log_proba_of_several_columns_is_that_of_each():
    model, X = make_model(50), rows()
    ids = some_labels(50)
    found = model.log_proba(X, ids, 1)
    assert found.shape == ids.shape
    for column in range(3):
        np.testing.assert_array_equal(found[:, column], model.log_proba(X, ids[:, column], 1))
    decoder = model.decoder()
    [(_, h)] = model.edge_scores(X, 1)
    expected = np.take_along_axis(decoder.all_log_proba(h), ids, axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_most_probable_label_is_the_best_one():
    model, X = make_model(50), rows(200)
    model.calibration = usual_calibration(model)
    best, _ = model.topk(X, 1, 1)
    np.testing.assert_array_equal(model.proba(X, 1).argmax(axis=1), best[:, 0])
    np.testing.assert_allclose(model.proba(X, 1).sum(axis=1), 1, rtol=1e-5)


def test_log_proba_of_more_rows_than_a_block(monkeypatch):
    model, X, ids = make_model(50), rows(20), some_labels(50, 20)
    expected = model.log_proba(X, ids, 1)
    monkeypatch.setattr(fitted, "ROWS_PER_CALL", 3)
    np.testing.assert_allclose(model.log_proba(X, ids, 1), expected, rtol=1e-6)


@pytest.mark.parametrize("loss", ["softmax", "logistic", "separation"])
@pytest.mark.parametrize("multilabel", [False, True])
def test_proba_of_few_labels_is_a_part_of_all_probabilities(monkeypatch, loss, multilabel):
    model, X = make_model(50, loss=loss, multilabel=multilabel), rows()
    ids = some_labels(50)
    expected = np.take_along_axis(model.proba(X, 1), ids, axis=1)
    found = model.proba_of(X, ids, 1)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    monkeypatch.setattr(fitted, "_MAX_CELLS", 100)  # two rows at a time
    np.testing.assert_allclose(model.proba_of(X, ids, 1), expected, rtol=1e-5)


def test_proba_of_a_few_among_many_labels_does_not_score_all(monkeypatch):
    n_labels = 10_001
    model, X = make_model(n_labels), rows()
    ids = some_labels(n_labels)
    expected = np.take_along_axis(model.proba(X, 1), ids, axis=1)
    monkeypatch.setattr(FittedModel, "proba", None)
    found = model.proba_of(X, ids, 1)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_proba_of_labels_beyond_any_table():
    n_labels = 10**6
    model, X = make_model(n_labels), rows()
    best, _ = model.topk(X, 3, 1)
    found = model.proba_of(X, best, 1)
    np.testing.assert_allclose(np.log(found), model.log_proba(X, best, 1), rtol=1e-5)


@pytest.mark.parametrize("n_labels", [50, 10_001])
def test_with_an_embedding_probabilities_are_normalized_over_all_labels(n_labels):
    model, X = make_model(n_labels), rows()
    rng = np.random.default_rng(3)
    features = Weights(
        aligned(rng.normal(size=(N_FEATURES, 16)).astype(np.float32)), None, 5, 1, False, False
    )
    labels = aligned(rng.normal(size=(n_labels, 16)).astype(np.float32))
    features.values[:, 5:] = labels[:, 5:] = 0
    model.embedding = Embedding(features, labels, dim=4, weight=0.5)
    ids = some_labels(n_labels)
    expected = np.take_along_axis(model.proba(X, 1), ids, axis=1)
    found = model.proba_of(X, ids, 1)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
