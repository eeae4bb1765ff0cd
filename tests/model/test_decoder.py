"""Decoding against brute force over all labels and paths, ties included."""

import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Graph, log_sum_exp

from ltls import TableCodebook, Trellis
from ltls.linear.weights import Weights, aligned, padded
from ltls.model import decoder
from ltls.model.decoder import Decoder
from ltls.model.embedding import Embedding
from ltls.model.topk import TopK
from ltls.structure.losses import LOSSES

N_ROWS = 6


class Problem:
    """Trellises with free paths, edge scores, and the scores of all labels by enumeration."""

    def __init__(self, n_paths, n_labels, width, loss, n_trellises, seed):
        rng = np.random.default_rng(seed)
        self.trellis, self.graph = Trellis(n_paths, width), Graph(n_paths, width)
        self.tables = [rng.permutation(n_paths)[:n_labels] for _ in range(n_trellises)]
        books = [TableCodebook(n_paths, table) for table in self.tables]
        self.decoder = Decoder(self.trellis, books, n_labels, LOSSES[loss])
        self.n_labels, self.loss = n_labels, loss
        block = padded(self.trellis.n_edges)
        # Small integers: sums are exact, and many scores are equal.
        X = rng.integers(-1, 2, (N_ROWS, 3)).astype(np.float32)
        W = np.zeros((3, n_trellises, block), np.float32)
        W[:, :, : self.trellis.n_edges] = rng.integers(
            -1, 2, (3, n_trellises, self.trellis.n_edges)
        )
        self.X, self.h = X, np.ascontiguousarray(X @ W.reshape(3, -1))
        values = aligned(W.reshape(3, -1))
        self.weights = Weights(values, None, self.trellis.n_edges, n_trellises, False, False)
        self.scores = np.array([self._label_scores(row.reshape(n_trellises, -1)) for row in self.h])

    def _label_scores(self, blocks):
        total = np.zeros(self.n_labels)
        for h, table in zip(blocks[:, : self.trellis.n_edges].tolist(), self.tables, strict=True):
            total += np.array(self._path_scores(h))[table]
        return total

    def _path_scores(self, h):
        if self.loss == "softmax":
            log_partition = log_sum_exp(self.graph.scores(h))
            return [score - log_partition for score in self.graph.scores(h)]
        if self.loss == "logistic":
            return self.graph.scores(self._logistic_scores(h))
        return self.graph.scores(h)

    def _logistic_scores(self, h):
        """log σ(h), and for early exits the best of every block that the path lacks."""
        graph = self.graph
        g = [-math.log1p(math.exp(-score)) for score in h]
        adjusted = list(g)
        for edge, (tail, head) in enumerate(graph.edges):
            column = (tail - 1) // graph.width
            if head == graph.sink and column < graph.n_slices:
                for block in range(column + 1, graph.n_slices + 1):
                    adjusted[edge] += max(
                        score for score, (_, to) in zip(g, graph.edges, strict=True)
                        if to != graph.sink and (to - 1) // graph.width == block
                    )  # fmt: skip
        return adjusted


@st.composite
def problems(draw, losses=tuple(LOSSES), n_trellises=(1, 2, 3), max_paths=60):
    n_paths = draw(st.integers(1, max_paths))
    return Problem(
        n_paths,
        draw(st.integers(1, n_paths)),
        draw(st.integers(2, 6)),
        draw(st.sampled_from(losses)),
        draw(st.sampled_from(n_trellises)),
        draw(st.integers(0, 2**32 - 1)),
    )


def assert_ranking(ids, scores, problem, k):
    """Labels are distinct, have their own scores, and these are the best ones in order."""
    k = min(k, problem.n_labels)
    assert ids.shape == scores.shape == (N_ROWS, k)
    assert ids.min() >= 0
    assert ids.max() < problem.n_labels
    assert all(len(set(row)) == k for row in ids.tolist())
    own = np.take_along_axis(problem.scores, ids, axis=1)
    np.testing.assert_allclose(scores, own, rtol=1e-4, atol=1e-4)
    assert (np.diff(scores, axis=1) <= 0).all()
    best = -np.sort(-problem.scores, axis=1)[:, :k]
    np.testing.assert_allclose(scores, best, rtol=1e-4, atol=1e-4)


@given(problem=problems(n_trellises=(1,)), k=st.integers(1, 70))
def test_one_trellis_finds_the_best_labels(problem, k):
    assert_ranking(*problem.decoder.topk(problem.h, k), problem, k)


@given(problem=problems(losses=("separation",), n_trellises=(1,)), k=st.integers(1, 70))
def test_ties_go_to_the_smaller_path(problem, k):
    ids, scores = problem.decoder.topk(problem.h, k)
    (table,) = problem.tables
    for row, own in enumerate(problem.scores):
        expected = sorted(range(problem.n_labels), key=lambda i: (-own[i], table[i]))[:k]
        assert ids[row].tolist() == expected
        assert scores[row].tolist() == [own[label] for label in expected]


@given(problem=problems(n_trellises=(2, 3), max_paths=12), k=st.integers(1, 14))
def test_several_trellises_find_the_best_labels_if_all_are_candidates(problem, k):
    assert_ranking(*problem.decoder.topk(problem.h, k), problem, k)


@given(problem=problems(n_trellises=(2, 3)), k=st.integers(1, 70))
def test_several_trellises_find_the_best_of_all_labels_where_labels_are_few(problem, k):
    assert_ranking(*problem.decoder.topk(problem.h, k), problem, k)


@given(problem=problems(n_trellises=(2, 3)), k=st.integers(1, 70))
def test_list_viterbi_returns_labels_with_their_own_scores(problem, k):
    with mock.patch.dict(decoder._SCAN, {False: 1}):
        ids, scores = problem.decoder.topk(problem.h, k)
    k = min(k, problem.n_labels)
    assert ids.shape == (N_ROWS, k)
    assert all(len(set(row)) == k for row in ids.tolist())
    own = np.take_along_axis(problem.scores, ids, axis=1)
    np.testing.assert_allclose(scores, own, rtol=1e-4, atol=1e-4)
    assert (np.diff(scores, axis=1) <= 0).all()


@given(problem=problems())
def test_scores_of_all_labels(problem):
    found = problem.decoder.all_scores(problem.h)
    assert found.shape == (N_ROWS, problem.n_labels)
    np.testing.assert_allclose(found, problem.scores, rtol=1e-4, atol=1e-4)


@given(problem=problems(losses=("softmax",)))
def test_probabilities_are_the_mean_over_trellises(problem):
    found = problem.decoder.all_log_proba(problem.h)
    n_trellises = len(problem.tables)
    each = np.zeros((n_trellises, N_ROWS, problem.n_labels))
    for i, row in enumerate(problem.h):
        for r, h in enumerate(row.reshape(n_trellises, -1)):
            own = problem._path_scores(h[: problem.trellis.n_edges].tolist())
            each[r, i] = np.exp(np.array(own)[problem.tables[r]])
    np.testing.assert_allclose(np.exp(found), each.mean(axis=0), rtol=1e-3, atol=1e-6)
    for label in range(problem.n_labels):
        one = problem.decoder.log_proba(problem.h, np.full(N_ROWS, label))
        np.testing.assert_allclose(one, found[:, label], rtol=1e-3, atol=1e-4)


# From features


@given(problem=problems(), k=st.integers(1, 70), n_jobs=st.sampled_from([None, 2]))
def test_topk_of_features_is_topk_of_their_edge_scores(problem, k, n_jobs):
    ids, scores = TopK(problem.weights, problem.decoder, [], k)(problem.X, n_jobs)
    expected_ids, expected_scores = problem.decoder.topk(problem.h, k)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5, atol=1e-5)
    if len(problem.tables) == 1:
        assert_ranking(ids, scores, problem, k)


@settings(max_examples=50)
@given(problem=problems(max_paths=8), k=st.integers(1, 9), seed=st.integers(0, 99))
def test_reranking_adds_the_scores_of_the_embedding(problem, k, seed):
    # With at most 8 labels all of them are candidates, and reranking is exact.
    rng = np.random.default_rng(seed)
    dim, stride = 2, 16
    features, labels = np.zeros((3, stride), np.float32), np.zeros((problem.n_labels, stride))
    features[:, :dim] = rng.integers(-1, 2, (3, dim))
    labels[:, : dim + 1] = rng.integers(-1, 2, (problem.n_labels, dim + 1))
    labels = labels.astype(np.float32)
    scorer = Weights(aligned(features), None, stride, 1, False, False)
    embedding = Embedding(scorer, labels, dim, weight=0.5)
    rows = problem.X @ features
    rows[:, dim] = 1
    problem.scores += 0.5 * rows @ labels.T
    ids, scores = TopK(problem.weights, problem.decoder, [embedding], k)(problem.X, None)
    assert_ranking(ids, scores, problem, k)


@pytest.mark.parametrize("n_trellises", [1, 3])
def test_the_search_widens_until_enough_labels_are_found(n_trellises):
    # 5 labels among 4,000 paths: the best paths are nearly all free.
    rng = np.random.default_rng(0)
    trellis = Trellis(4000, 4)
    books = [TableCodebook(4000, rng.permutation(4000)[:5]) for _ in range(n_trellises)]
    decoder = Decoder(trellis, books, 5, LOSSES["softmax"])
    h = rng.normal(size=(20, n_trellises * padded(trellis.n_edges))).astype(np.float32)
    k = 3 if n_trellises == 1 else 5  # several trellises are exact if all labels are wanted
    ids, scores = decoder.topk(h, k)
    everything = decoder.all_scores(h)
    np.testing.assert_allclose(scores, -np.sort(-everything, axis=1)[:, :k], rtol=1e-4)
    np.testing.assert_array_equal(ids, np.argsort(-everything, axis=1)[:, :k])
