"""The search with label weights: candidates, then −max(0, 1 − s)³ + weight · b, against NumPy."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltls import TableCodebook, Trellis
from ltls.core import _engine
from ltls.linear.weights import Weights, aligned, padded
from ltls.model import decoder
from ltls.model.decoder import Decoder
from ltls.model.label_weights import LabelWeights
from ltls.model.topk import TopK
from ltls.structure.codebook import BucketCodebook
from ltls.structure.losses import LOSSES

N_ROWS, N_FEATURES = 6, 3


class Problem:
    """Trellises and label weights that are small integers, so that sums are exact and tie."""

    def __init__(self, n_labels, n_trellises, shares_paths, n_candidates, seed, intercept=True):
        rng = np.random.default_rng(seed)
        n_paths = -(-n_labels // 3) if shares_paths else n_labels + seed % 3
        self.trellis, self.n_labels = Trellis(n_paths, 3), n_labels
        if shares_paths:
            tables = [rng.integers(0, n_paths, n_labels) for _ in range(n_trellises)]
            books = [BucketCodebook(n_paths, table) for table in tables]
        else:
            tables = [rng.permutation(n_paths)[:n_labels] for _ in range(n_trellises)]
            books = [TableCodebook(n_paths, table) for table in tables]
        self.decoder = Decoder(self.trellis, books, n_labels, LOSSES["separation"])
        n_edges, block = self.trellis.n_edges, padded(self.trellis.n_edges)
        W = np.zeros((N_FEATURES + intercept, n_trellises, block), np.float32)
        W[:, :, :n_edges] = rng.integers(-1, 2, (len(W), n_trellises, n_edges))
        values = aligned(W.reshape(len(W), -1))
        self.weights = Weights(values, None, n_edges, n_trellises, intercept, False)
        has_weight = rng.random((N_FEATURES + 1, n_labels)) < rng.choice([0.05, 0.5, 1.0])
        V = rng.integers(-3, 4, has_weight.shape) * has_weight
        self.label_weights = LabelWeights(
            np.concatenate([[0], np.cumsum(has_weight.sum(axis=1))]),
            np.concatenate([np.flatnonzero(row) for row in has_weight]).astype(np.uint16),
            V[has_weight].astype(np.int8),
            np.full(N_FEATURES + 1, 0.25, np.float32),
            n_labels,
            unit_length=False,
            weight=0.5,
            n_candidates=n_candidates,
        )
        self.X = rng.integers(-1, 2, (N_ROWS, N_FEATURES)).astype(np.float32)
        rows = np.column_stack([self.X, np.ones(N_ROWS, np.float32)])
        self.h = np.ascontiguousarray(rows[:, : len(W)] @ W.reshape(len(W), -1))
        s = 0.25 * rows @ V
        b = self.decoder.all_scores(self.h)
        self.scores = -(np.maximum(0, 1 - s) ** 3) + 0.5 * b

    def expected(self, k):
        """The scores of the k best candidates."""
        n = min(max(k, self.label_weights.n_candidates), self.n_labels)
        candidates, _ = self.decoder.topk(self.h, n)
        return -np.sort(-np.take_along_axis(self.scores, candidates, axis=1), axis=1)[:, :k]


problems = st.builds(
    Problem,
    n_labels=st.integers(1, 90),
    n_trellises=st.integers(1, 3),
    shares_paths=st.booleans(),
    n_candidates=st.integers(1, 100),
    seed=st.integers(0, 2**32 - 1),
    intercept=st.booleans(),
)


def assert_best(problem, ids, scores, k):
    k = min(k, problem.n_labels)
    assert ids.shape == scores.shape == (N_ROWS, k)
    assert all(len(set(row)) == k for row in ids.tolist())
    own = np.take_along_axis(problem.scores, ids, axis=1)
    np.testing.assert_allclose(scores, own, rtol=1e-5)
    assert (np.diff(scores, axis=1) <= 0).all()
    np.testing.assert_allclose(scores, problem.expected(k), rtol=1e-5)


@given(
    problem=problems,
    k=st.integers(1, 20),
    scan=st.sampled_from([1, 64]),
    n_jobs=st.sampled_from([None, 2]),
)
def test_the_best_candidates_are_found(problem, k, scan, n_jobs):
    k = min(k, problem.label_weights.n_candidates)  # beyond these, the others follow below
    with mock.patch.dict(decoder._SCAN, {False: scan, True: scan}):
        topk = TopK(problem.weights, problem.decoder, [problem.label_weights], k)
        assert_best(problem, *topk(problem.X, n_jobs), k)


@pytest.mark.parametrize("shares_paths", [False, True])
def test_with_every_instruction_set(instruction_set, shares_paths):
    problem = Problem(400, 3, shares_paths, 50, seed=1)
    topk = TopK(problem.weights, problem.decoder, [problem.label_weights], 5)
    assert_best(problem, *topk(problem.X, None), 5)


@given(problem=problems)
def test_scores_are_the_same_for_any_k(problem):
    """Also bit for bit: thresholds are compared with them."""
    n = min(problem.label_weights.n_candidates, problem.n_labels)
    each = [TopK(problem.weights, problem.decoder, [problem.label_weights], k) for k in (1, n)]
    (_, one), (_, all_of_them) = (topk(problem.X, None) for topk in each)
    np.testing.assert_array_equal(one[:, 0], all_of_them[:, 0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_candidates": 2}, r"n_candidates must be at least k = 3, got 2"),
        ({"intercept": False}, r"label_weights must have the features of weights, an intercept"),
    ],
)
def test_the_engine_checks_label_weights(change, message):
    problem = Problem(20, 2, False, 10, seed=0, intercept=change.pop("intercept", True))
    settings = {"n_candidates": 10} | change
    with pytest.raises(ValueError, match=message):
        _engine.Predictor(
            problem.trellis.engine, [book.decoding_engine for book in problem.decoder.codebooks],
            problem.weights.engine, problem.weights.intercept, False, "separation", 20, 5, 3,
            problem.label_weights.engine, 0.5, settings["n_candidates"],
        )  # fmt: skip
