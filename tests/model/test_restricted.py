"""The k best of some labels, against brute force over all paths, labels and rerankers."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Graph, log_sum_exp
from scipy.sparse import csr_array

from ltls import TableCodebook, Trellis
from ltls.linear.weights import Weights, aligned, padded
from ltls.model import restricted
from ltls.model.embedding import Embedding
from ltls.model.fitted import FittedModel
from ltls.model.label_weights import LabelWeights
from ltls.model.labels import Labels
from ltls.model.restricted import AllowedLabels
from ltls.structure.codebook import BucketCodebook
from ltls.structure.losses import LOSSES

N_ROWS, N_FEATURES, DIM = 4, 3, 2


class Problem:
    """A model with random weights, and what its parts say of every label, from the definitions.

    The search of the candidates is exhaustive: labels share at most 20 paths, or there is one
    trellis, or at most 12 labels.
    """

    def __init__(self, n_labels, n_paths, loss, n_trellises, parts, multilabel, seed):
        rng = np.random.default_rng(seed)
        shares_paths = n_paths < n_labels
        trellis = Trellis(n_paths, 3)
        if shares_paths:
            self.tables = [rng.integers(0, n_paths, n_labels) for _ in range(n_trellises)]
            books = [BucketCodebook(n_paths, table) for table in self.tables]
        else:
            self.tables = [rng.permutation(n_paths)[:n_labels] for _ in range(n_trellises)]
            books = [TableCodebook(n_paths, table) for table in self.tables]
        self.X = rng.normal(size=(N_ROWS, N_FEATURES)).astype(np.float32)
        self.W = rng.normal(size=(n_trellises, N_FEATURES, trellis.n_edges)).astype(np.float32)
        self.graph, self.loss, self.n_labels = Graph(n_paths, 3), loss, n_labels
        self.multilabel, self.n_trellises = multilabel, n_trellises
        self.model = FittedModel(
            Labels(range(n_labels)), trellis, books, LOSSES[loss], 0.0, multilabel, "single"
        )
        blocks = np.zeros((N_FEATURES, n_trellises, padded(trellis.n_edges)), np.float32)
        blocks[:, :, : trellis.n_edges] = self.W.transpose(1, 0, 2)
        values = aligned(blocks.reshape(N_FEATURES, -1))
        self.model.frozen = Weights(values, None, trellis.n_edges, n_trellises, False, False)
        self.embedding = self.label_weights = self.bonus = None
        if "embedding" in parts:
            self._add_embedding(rng)
        if "label weights" in parts:
            self._add_label_weights(rng)
        if "propensity" in parts:
            self.model.propensity = 0.7
            self.model.counts, self.model.n_rows = rng.integers(0, 50, n_labels), 200
            c = (math.log(200) - 1) * 2.5**0.55
            propensity = [1 / (1 + c * (n + 1.5) ** -0.55) for n in self.model.counts.tolist()]
            self.bonus = [-0.7 * math.log(p) for p in propensity]

    def _add_embedding(self, rng):
        A, B = rng.normal(size=(N_FEATURES, DIM)), rng.normal(size=(self.n_labels, DIM + 1))
        features = np.zeros((N_FEATURES, padded(DIM + 1)), np.float32)
        labels = np.zeros((self.n_labels, padded(DIM + 1)), np.float32)
        features[:, :DIM], labels[:, : DIM + 1] = A, B
        weights = Weights(aligned(features), None, DIM + 1, 1, False, False)
        self.model.embedding = Embedding(weights, aligned(labels), DIM, 0.5)
        self.embedding = 0.5 * (self.X.astype(np.float64) @ A @ B[:, :DIM].T + B[:, DIM])

    def _add_label_weights(self, rng):
        shape = (self.n_labels, N_FEATURES + 1)
        W = rng.normal(size=shape) * (rng.random(shape) < 0.7)
        weights = LabelWeights.of_matrix(
            csr_array(W.astype(np.float32)), unit_length=False, weight=0.3, n_candidates=7
        )
        self.model.label_weights = weights
        scale = np.abs(W).max(axis=0) / 127
        rounded = np.rint(W / np.where(scale > 0, scale, 1)) * scale
        outputs = self.X.astype(np.float64) @ rounded[:, :-1].T + rounded[:, -1]
        self.label_weights = -(np.maximum(0, 1 - outputs) ** 3)

    def path_scores(self, row):
        """The scores of all paths of every trellis: log-probabilities for softmax."""
        every = []
        for W in self.W:
            h = (self.X[row] @ W).astype(np.float64).tolist()
            scores = self.graph.scores(self._log_sigmoid(h) if self.loss == "logistic" else h)
            total = log_sum_exp(scores) if self.loss == "softmax" else 0
            every.append([score - total for score in scores])
        return every

    def _log_sigmoid(self, h):
        """log σ(h), and for early exits the best of every block that the path lacks."""
        graph, g = self.graph, [-math.log1p(math.exp(-score)) for score in h]
        best = {}
        for score, (_, head) in zip(g, graph.edges, strict=True):
            if head != graph.sink:
                column = (head - 1) // graph.width
                best[column] = max(score, best.get(column, -math.inf))
        for edge, (tail, head) in enumerate(graph.edges):
            if head == graph.sink:
                first = (tail - 1) // graph.width + 1
                g[edge] += sum(best[column] for column in range(first, graph.n_slices + 1))
        return g

    def scores(self, row, bonus=True):
        """The score of every label, and its own score where a limit holds it below candidates."""
        per_trellis = self.path_scores(row)
        trellis = [
            sum(own[table[label]] for own, table in zip(per_trellis, self.tables, strict=True))
            for label in range(self.n_labels)
        ]
        own = list(trellis)
        if self.embedding is not None:
            own = [a + b for a, b in zip(own, self.embedding[row], strict=True)]
        needed = 8 if self.embedding is not None else 0
        if self.label_weights is not None:
            own = [0.3 * a + b for a, b in zip(own, self.label_weights[row], strict=True)]
            needed = max(needed, 7)
        if self.bonus is not None and bonus:
            own = [a + b for a, b in zip(own, self.bonus, strict=True)]
            needed = max(needed, 20)
        limited = self.label_weights is not None or (self.bonus is not None and bonus)
        if not limited:
            return own, own
        candidates = sorted(range(self.n_labels), key=lambda label: -trellis[label])[:needed]
        lowest = min(own[label] for label in candidates)
        clipped = [
            own[label] if label in candidates else min(own[label], lowest)
            for label in range(self.n_labels)
        ]
        ranks = [
            own[label] if label in candidates else own[label] - 1e6
            for label in range(self.n_labels)
        ]
        return clipped, ranks

    def best(self, row, allowed, k):
        """The k best of the allowed labels and their scores."""
        scores, ranks = self.scores(row)
        chosen = sorted(allowed, key=lambda label: (-ranks[label], label))[:k]
        return chosen, [scores[label] for label in chosen]

    def probabilities(self, row, allowed):
        """The probability of every allowed label, given that it is one of them."""
        if self.loss == "logistic" and self.multilabel and self.label_weights is None:
            per_trellis = self.path_scores(row)
            return {
                label: math.exp(
                    sum(own[table[label]] for own, table in zip(per_trellis, self.tables,
                                                                strict=True))
                    / self.n_trellises
                )
                for label in allowed
            }  # fmt: skip
        scores, _ = self.scores(row, bonus=False)
        if self.loss == "logistic" and self.multilabel:
            return {label: math.exp(min(scores[label], 0)) for label in allowed}
        if self.loss == "softmax" and self.label_weights is None and self.embedding is None:
            per_trellis = self.path_scores(row)
            scores = [
                log_sum_exp([own[table[label]]
                             for own, table in zip(per_trellis, self.tables, strict=True)])
                for label in range(self.n_labels)
            ]  # fmt: skip
        elif self.label_weights is None and self.embedding is not None:
            scores = [score / (self.n_trellises + 0.5) for score in scores]
        total = log_sum_exp([scores[label] for label in allowed])
        return {label: math.exp(scores[label] - total) for label in allowed}


@st.composite
def problems(draw, loss=None):
    kind = draw(st.sampled_from(["one trellis", "few labels", "buckets"]))
    n_labels = draw(st.integers(2, 12 if kind == "few labels" else 40))
    n_paths = draw(st.integers(2, min(19, n_labels))) if kind == "buckets" else n_labels
    several = kind != "one trellis"
    return Problem(
        n_labels,
        n_paths,
        loss or draw(st.sampled_from(["softmax", "separation", "logistic"])),
        draw(st.integers(1, 3)) if several else 1,
        draw(st.sets(st.sampled_from(["embedding", "label weights", "propensity"]))),
        draw(st.booleans()),
        draw(st.integers(0, 1 << 20)),
    )


def sets_of(problem, data, n_sets):
    label = st.integers(0, problem.n_labels - 1)
    return [sorted(data.draw(st.sets(label, min_size=i == 0))) for i in range(n_sets)]


def allowed_of(sets):
    indptr = np.concatenate([[0], np.cumsum([len(each) for each in sets])])
    flat = [label for each in sets for label in reversed(each)]
    return AllowedLabels.of(indptr, np.array(flat, np.int64))


def assert_best(problem, sets, k, ids, scores):
    for row in range(N_ROWS):
        allowed = sets[row if len(sets) > 1 else 0]
        expected, values = problem.best(row, allowed, k)
        n = len(expected)
        np.testing.assert_allclose(scores[row, :n], values, rtol=1e-4, atol=1e-4)
        assert (ids[row, n:] == -1).all()
        assert (scores[row, n:] == -np.inf).all()
        assert len(set(ids[row, :n].tolist())) == n
        assert set(ids[row, :n].tolist()) <= set(allowed)
        _, ranks = problem.scores(row)
        # In the order of the ranks, up to rounding.
        found = [ranks[label] for label in ids[row, :n].tolist()]
        wanted = [ranks[label] for label in expected]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 if n else 0)


@settings(max_examples=150)
@given(problem=problems(), k=st.integers(1, 12), data=st.data())
def test_the_best_of_one_set_or_of_a_set_per_row(problem, k, data):
    sets = sets_of(problem, data, data.draw(st.sampled_from([1, N_ROWS])))
    ids, scores = problem.model.topk_among(problem.X, k, allowed_of(sets), 1)
    assert ids.shape == scores.shape == (N_ROWS, min(k, max(map(len, sets))))
    assert_best(problem, sets, k, ids, scores)


@settings(max_examples=50)
@given(problem=problems(), k=st.integers(1, 12))
def test_all_labels_allowed_is_the_ranking_of_all_scores(problem, k):
    sets = [list(range(problem.n_labels))]
    _, scores = problem.model.topk_among(problem.X, k, allowed_of(sets), 1)
    every = np.sort(problem.model.all_scores(problem.X, 1), axis=1)[:, ::-1]
    np.testing.assert_allclose(scores, every[:, :k], rtol=1e-4, atol=1e-4)


@settings(max_examples=80)
@given(problem=problems(), data=st.data())
def test_probabilities_are_those_given_the_allowed_labels(problem, data):
    sets = sets_of(problem, data, data.draw(st.sampled_from([1, N_ROWS])))
    allowed = allowed_of(sets)
    ids, _ = problem.model.topk_among(problem.X, problem.n_labels, allowed, 1)
    found = problem.model.proba_among(problem.X, ids, allowed, 1)
    for row in range(N_ROWS):
        expected = problem.probabilities(row, sets[row if len(sets) > 1 else 0])
        values = [expected.get(label, 0.0) for label in ids[row].tolist()]
        np.testing.assert_allclose(found[row], values, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("shared", [True, False])
def test_many_rows_are_scored_in_blocks(monkeypatch, shared):
    problem = Problem(30, 30, "softmax", 1, {"label weights", "embedding"}, False, seed=3)
    sets = [[3, 4, 9]] if shared else [[3], [], [4, 5, 6], [7, 29]]
    expected = problem.model.topk_among(problem.X, 2, allowed_of(sets), 1)
    monkeypatch.setattr(restricted, "MAX_CELLS", 3)
    found = problem.model.topk_among(problem.X, 2, allowed_of(sets), 1)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_sets_are_sorted_without_duplicates():
    allowed = AllowedLabels.of(np.array([0, 3, 3, 5]), np.array([5, 1, 5, 1, 0]))
    np.testing.assert_array_equal(allowed.indptr, [0, 2, 2, 4])
    np.testing.assert_array_equal(allowed.ids, [1, 5, 0, 1])
    np.testing.assert_array_equal(allowed.of_rows(slice(0, 3)), [[1, 5], [-1, -1], [0, 1]])
