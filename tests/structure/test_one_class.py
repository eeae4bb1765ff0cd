"""A trellis of one class has no edges and one path of score 0, in every part of the engine."""

import numpy as np
import pytest

from ltls import LTLSClassifier, RandomCodebook, TableCodebook, Trellis
from ltls.core import _engine
from ltls.features.rows import Rows
from ltls.settings import Trellises

ONE_PATH = Trellises(assignment=TableCodebook(1), n_trellises=1)
LOSSES = [loss.name for loss in _engine.losses()]


@pytest.mark.parametrize("n_rows", [1, 16, 37])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dynamic_programs(instruction_set, dtype, n_rows):
    trellis, h = Trellis(1), np.empty((n_rows, 0), dtype)
    for paths, scores in (trellis.viterbi(h), trellis.topk(h, 1), trellis.sample(h, 3)):
        assert not paths.any()
        assert not scores.any()
    assert not trellis.log_partition(h).any()
    assert trellis.marginals(h).shape == (n_rows, 0)
    assert not trellis.score(h, np.zeros(n_rows, np.int64)).any()
    assert trellis.viterbi(h[0]) == (0, 0)
    assert trellis.topk(h[0], 3)[0].tolist() == [0]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n_trellises", [1, 3])
@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("assigns", [False, True])
def test_training(instruction_set, loss, n_trellises, batch_size, assigns):
    trellis, X = Trellis(1), np.eye(5)
    books = [TableCodebook(1) for _ in range(n_trellises)] if assigns else []
    paths = np.full((n_trellises, 5), -1 if assigns else 0)
    task = _engine.TrainTask(
        trellis.engine, Rows(X, True, False).engine, np.arange(6), np.zeros(5, np.int64),
        paths, None, [book.engine for book in books],
        loss=loss, multilabel=False, ranking_multiplier=1,
    )  # fmt: skip
    weights = np.empty((6, 0), np.float32)
    found = task.run(
        weights, weights, None, np.arange(5), step=1, learning_rate=0.1, threshold=0.0,
        count_hits=True, batch_size=batch_size, n_jobs=2,
    )  # fmt: skip
    assert found == (0.0, 5.0, 5)
    assert not paths.any()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n_trellises", [1, 3])
@pytest.mark.parametrize("n_rows", [1, 37])
def test_decoding(instruction_set, loss, n_trellises, n_rows):
    books = [RandomCodebook(1).engine for _ in range(n_trellises)]
    trellis = Trellis(1).engine
    h = np.empty((n_rows, 0), np.float32)
    labels, scores = np.full((n_rows, 2), -7), np.full((n_rows, 2), 7, np.float32)
    _engine.decode(trellis, books, h, loss, 1, 1, labels, scores, 1)
    np.testing.assert_array_equal(labels, [[0, -1]] * n_rows)
    np.testing.assert_array_equal(scores, [[0, -np.inf]] * n_rows)
    _engine.decode_scores(trellis, loss, h, h.copy())
    labels[:] = -7
    weights = _engine.Weights.dense(np.empty((4, 0), np.float32), None)
    predictor = _engine.Predictor(trellis, books, weights, False, False, loss, 1, 1, 2)
    predictor.predict(Rows(np.ones((n_rows, 4)), False, False).engine, 0, labels, scores, 1)
    np.testing.assert_array_equal(labels, [[0, -1]] * n_rows)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n_trellises", [1, 2])
def test_estimator(loss, n_trellises):
    book = TableCodebook(1) if n_trellises == 1 else "ranking"
    trellises = Trellises(assignment=book, n_trellises=n_trellises, loss=loss)
    model = LTLSClassifier(trellises=trellises, random_state=0)
    X = np.eye(2)
    model.partial_fit(X, ["a", "a"])
    assert model.predict(X).tolist() == ["a", "a"]
    labels, scores = model.predict_topk(X, 3)
    assert labels.tolist() == [["a"], ["a"]]
    assert np.isfinite(scores).all()
    assert model.predictor(k=1)([0], [1.0])[0].tolist() == ["a"]


def test_a_trellis_that_cannot_grow_leaves_the_estimator_unchanged():
    model = LTLSClassifier(trellises=ONE_PATH, random_state=0)
    model.partial_fit(np.eye(2), ["a", "a"])
    with pytest.raises(ValueError, match=r"one class .* cannot grow"):
        model.partial_fit(np.eye(2), ["b", "b"])
    assert model.classes_.tolist() == ["a"]
    assert model.predict(np.eye(2)).tolist() == ["a", "a"]


@pytest.mark.parametrize("assignment", ["random", "ranking", "frequency", "similarity", "learned"])
def test_policies_start_with_room_for_a_second_label(assignment):
    model = LTLSClassifier(trellises=Trellises(assignment=assignment), random_state=0)
    model.partial_fit(np.eye(2), ["a", "a"])
    for _ in range(20):
        model.partial_fit(np.eye(2), ["a", "b"])
    assert model.predict(np.eye(2)).tolist() == ["a", "b"]


@pytest.mark.parametrize("n_labels", [-1, 11, 2**62])
def test_more_labels_than_paths_are_rejected(n_labels):
    trellis, books = Trellis(10).engine, [RandomCodebook(10).engine]
    n_edges = trellis.n_edges
    message = f"n_labels must be between 0 and 10, .*got {n_labels}"
    labels, scores = np.empty((1, 1), np.int64), np.empty((1, 1), np.float32)
    with pytest.raises(ValueError, match=message):
        _engine.decode(
            trellis, books, np.zeros((1, n_edges), np.float32), "softmax", n_labels, 1, labels,
            scores, 1,
        )  # fmt: skip
    weights = _engine.Weights.dense(np.zeros((4, n_edges), np.float32), None)
    with pytest.raises(ValueError, match=message):
        _engine.Predictor(trellis, books, weights, False, False, "softmax", n_labels, 1, 1)
