"""Decoding where labels share paths, against brute force over all labels and paths."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Graph, log_sum_exp

from ltls import TableCodebook, Trellis
from ltls.core import _engine
from ltls.linear.weights import Weights, aligned, padded
from ltls.model.decoder import Decoder
from ltls.model.predictor import Predictor
from ltls.model.topk import TopK
from ltls.structure.codebook import BucketCodebook
from ltls.structure.losses import LOSSES

N_ROWS, N_FEATURES = 4, 3


class Problem:
    """Trellises whose paths have any number of labels, and edge scores.

    Edge scores are small integers, so that sums are exact and many are equal; those of the logistic
    loss are random, because its sums of logarithms are never exact.
    """

    def __init__(self, n_paths, n_labels, width, loss, n_trellises, seed):
        rng = np.random.default_rng(seed)
        self.trellis, self.graph = Trellis(n_paths, width), Graph(n_paths, width)
        self.tables = [rng.integers(0, n_paths, n_labels) for _ in range(n_trellises)]
        self.books = [BucketCodebook(n_paths, table) for table in self.tables]
        self.decoder = Decoder(self.trellis, self.books, n_labels, LOSSES[loss])
        self.n_labels, self.loss = n_labels, loss
        n_edges, block = self.trellis.n_edges, padded(self.trellis.n_edges)
        X = rng.integers(-1, 2, (N_ROWS, N_FEATURES)).astype(np.float32)
        W = np.zeros((N_FEATURES, n_trellises, block), np.float32)
        shape = (N_FEATURES, n_trellises, n_edges)
        W[:, :, :n_edges] = rng.integers(-1, 2, shape)
        if loss == "logistic":
            X = rng.normal(size=X.shape).astype(np.float32)
            W[:, :, :n_edges] = rng.normal(size=shape)
        W = W.reshape(N_FEATURES, -1)
        self.X, self.h = X, np.ascontiguousarray(X @ W)
        self.weights = Weights(aligned(W), None, n_edges, n_trellises, False, False)
        self.rows = [self._path_scores(row.reshape(n_trellises, -1)) for row in self.h]

    def _path_scores(self, blocks):
        """For every trellis, the scores that its paths are ranked by."""
        scores = []
        for h in blocks[:, : self.trellis.n_edges].tolist():
            h = self._log_sigmoid(h) if self.loss == "logistic" else h
            scores.append(self.graph.scores(h))
        return scores

    def _log_sigmoid(self, h):
        """log σ(h), and for early exits the best of every block that the path lacks."""
        graph, g = self.graph, [-math.log1p(math.exp(-score)) for score in h]
        best = {}  # of the edges into each column
        for score, (_, head) in zip(g, graph.edges, strict=True):
            if head != graph.sink:
                column = (head - 1) // graph.width
                best[column] = max(score, best.get(column, -math.inf))
        for edge, (tail, head) in enumerate(graph.edges):
            if head == graph.sink:
                first = (tail - 1) // graph.width + 1
                g[edge] += sum(best[column] for column in range(first, graph.n_slices + 1))
        return g

    def label_scores(self, scores):
        """The sum over the trellises of every label's path score, up to the log-partitions."""
        return [
            sum(own[table[label]] for own, table in zip(scores, self.tables, strict=True))
            for label in range(self.n_labels)
        ]

    def expected(self, n_paths, k):
        """(labels, scores) of the k best labels of the best paths of every trellis, by row."""
        found = []
        for scores in self.rows:
            candidates = set()
            for own, table in zip(scores, self.tables, strict=True):
                ranked = sorted(range(len(own)), key=lambda path: (-own[path], path))
                best = set(ranked[:n_paths])
                candidates |= {label for label in range(self.n_labels) if table[label] in best}
            total = self.label_scores(scores)
            shift = sum(map(log_sum_exp, scores)) if self.loss == "softmax" else 0
            order = sorted(candidates, key=lambda label: (-total[label], label))[:k]
            padding = k - len(order)
            found.append(
                (order + [-1] * padding,
                 [total[label] - shift for label in order] + [-math.inf] * padding)
            )  # fmt: skip
        ids, scores = zip(*found, strict=True)
        return np.array(ids), np.array(scores)

    def decode(self, n_paths, k, n_jobs=1):
        ids = np.empty((N_ROWS, k), np.int64)
        scores = np.empty((N_ROWS, k), np.float32)
        _engine.decode(
            self.trellis.engine, [book.engine for book in self.books], self.h, self.loss,
            self.n_labels, min(n_paths, self.trellis.n_classes), ids, scores, n_jobs,
        )  # fmt: skip
        return ids, scores


@st.composite
def problems(draw, max_paths=60, max_labels=150):
    return Problem(
        draw(st.integers(1, max_paths)),
        draw(st.integers(1, max_labels)),
        draw(st.integers(2, 9)),
        draw(st.sampled_from(list(LOSSES))),
        draw(st.integers(1, 3)),
        draw(st.integers(0, 2**32 - 1)),
    )


def assert_same(found, expected):
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-4, atol=1e-4)


@given(problem=problems(), n_paths=st.integers(1, 200), k=st.integers(1, 200))
def test_the_best_labels_of_the_best_paths(problem, n_paths, k):
    assert_same(problem.decode(n_paths, k), problem.expected(n_paths, k))


@settings(max_examples=30)
@given(problem=problems(), n_paths=st.integers(1, 20), k=st.integers(1, 20))
def test_with_every_instruction_set(problem, n_paths, k):
    expected = problem.expected(n_paths, k)
    for name in _engine.instruction_sets():
        previous = _engine.use_instruction_set(name)
        try:
            assert_same(problem.decode(n_paths, k), expected)
        finally:
            _engine.use_instruction_set(previous)


@pytest.mark.parametrize("width", range(2, 10))
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n_trellises", [1, 2, 3])
def test_all_labels_are_ranked_if_all_paths_are_searched(width, loss, n_trellises):
    problem = Problem(75, 100, width, loss, n_trellises, seed=width)
    for row, (ids, scores) in enumerate(zip(*problem.decode(75, 100), strict=True)):
        total = problem.label_scores(problem.rows[row])
        assert ids.tolist() == sorted(range(100), key=lambda label: (-total[label], label))
        assert np.isfinite(scores).all()


@pytest.mark.parametrize("loss", LOSSES)
def test_many_paths_are_found_by_list_viterbi(loss):
    problem = Problem(2**14 + 100, 300, 9, loss, 2, seed=0)
    expected = problem.expected(2000, 20)
    assert (expected[0] >= 0).all()
    for name in _engine.instruction_sets():
        previous = _engine.use_instruction_set(name)
        try:
            assert_same(problem.decode(2000, 20), expected)
        finally:
            _engine.use_instruction_set(previous)


@pytest.mark.parametrize("n_paths", range(1, 90))
def test_every_number_of_paths(n_paths):
    problem = Problem(n_paths, 40, 3, "separation", 2, seed=n_paths)
    assert_same(problem.decode(n_paths, 40), problem.expected(n_paths, 40))


def test_labels_are_missing_if_too_few_paths_are_searched():
    problem = Problem(30, 60, 4, "separation", 1, seed=0)
    ids, scores = problem.decode(2, 60)
    assert (ids[:, -1] == -1).all()
    assert (scores[ids < 0] == -np.inf).all()
    assert_same((ids, scores), problem.expected(2, 60))


@given(problem=problems(max_paths=200), k=st.integers(1, 160))
def test_the_decoder_searches_until_it_has_k_labels(problem, k):
    ids, scores = problem.decoder.topk(problem.h, k)
    k = min(k, problem.n_labels)
    assert ids.shape == scores.shape == (N_ROWS, k)
    assert ids.min() >= 0
    assert all(len(set(row)) == k for row in ids.tolist())
    every = problem.expected(problem.trellis.n_classes, problem.n_labels)
    by_label = np.empty((N_ROWS, problem.n_labels))
    np.put_along_axis(by_label, *every, axis=1)
    own = np.take_along_axis(by_label, ids, axis=1)
    np.testing.assert_allclose(scores, own, rtol=1e-4, atol=1e-4)
    assert (np.diff(scores, axis=1) <= 0).all()
    if problem.trellis.n_classes <= 20:  # the fewest paths that it searches
        np.testing.assert_allclose(scores, every[1][:, :k], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        problem.decoder.all_scores(problem.h), by_label, rtol=1e-4, atol=1e-4
    )


@given(problem=problems(), k=st.integers(1, 160), n_jobs=st.sampled_from([None, 2]))
def test_features_to_labels(problem, k, n_jobs):
    expected_ids, expected = problem.decoder.topk(problem.h, k)
    search = TopK(problem.weights, problem.decoder, [], k)
    ids, scores = search(problem.X, n_jobs)
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)
    if problem.loss != "logistic":  # sums are exact
        np.testing.assert_array_equal(ids, expected_ids)
    predictor = Predictor(np.arange(problem.n_labels), search)
    for row, x in enumerate(problem.X):
        found = predictor(np.arange(N_FEATURES), x)
        np.testing.assert_array_equal(found[0], ids[row])
        np.testing.assert_allclose(found[1], scores[row], rtol=1e-4, atol=1e-4)


def test_threads_and_the_order_of_rows_change_nothing():
    rng = np.random.default_rng(0)
    trellis, n_rows = Trellis(50, 5), 300
    books = [BucketCodebook(50, rng.integers(0, 50, 400)) for _ in range(2)]
    h = rng.normal(size=(n_rows, 2 * padded(trellis.n_edges))).astype(np.float32)
    one = Decoder(trellis, books, 400, LOSSES["softmax"], 1).topk(h, 30)
    two = Decoder(trellis, books, 400, LOSSES["softmax"], 2).topk(h, 30)
    backwards = Decoder(trellis, books, 400, LOSSES["softmax"], 2).topk(h[::-1].copy(), 30)
    for ours, others, reverse in zip(one, two, backwards, strict=True):
        np.testing.assert_array_equal(ours, others)
        np.testing.assert_array_equal(ours, reverse[::-1])


def test_one_path_for_all_labels():
    # A trellis of one path has no edges: all scores are 0, and labels are in their order.
    books = [BucketCodebook(1, np.zeros(5, np.int64))]
    h = np.zeros((2, padded(0)), np.float32)
    ids, scores = Decoder(Trellis(1, 2), books, 5, LOSSES["softmax"]).topk(h, 3)
    np.testing.assert_array_equal(ids, [[0, 1, 2]] * 2)
    assert not scores.any()


def decode(books, n_labels, n_paths=1):
    trellis = Trellis(6, 2)
    h = np.zeros((1, len(books) * padded(trellis.n_edges)), np.float32)
    ids, scores = np.empty((1, 1), np.int64), np.empty((1, 1), np.float32)
    engines = [book.engine for book in books]
    _engine.decode(trellis.engine, engines, h, "softmax", n_labels, n_paths, ids, scores, 1)


def test_codebooks_that_do_not_fit_are_rejected():
    book = BucketCodebook(6, [0, 1, 0])
    with pytest.raises(ValueError, match="a path per class of the trellis"):
        decode([BucketCodebook(5, [0, 1, 0])], 3)
    for other in (BucketCodebook(6, [0, 1]), TableCodebook(6, [0, 1, 2])):
        for books in ([book, other], [other, book]):
            with pytest.raises(ValueError, match="must all have buckets of the same labels"):
                decode(books, 2)
    with pytest.raises(ValueError, match=r"n_labels must be between 0 and 3.*got 4"):
        decode([book], 4)
    with pytest.raises(ValueError, match=r"n_paths must be between 1 and 6"):
        decode([book], 3, n_paths=7)
    decode([book], 3)
