"""The naive baselines of the paper's table 3: what a model of the same size does without a trellis.

A trellis of E edges has the size of E binary models. One can spend these on the E most frequent
labels instead: `oracle` is the best that this could give, `TopLabelsLR` what it gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from ltls.metrics import label_matrix, precision_at_k


def oracle(y_train: Any, y_test: Any, n_labels: int) -> float:
    """Return the precision@1 of a perfect classifier of the most frequent training labels."""
    known = most_frequent(label_matrix(y_train), n_labels)
    test = label_matrix(y_test)
    rows = np.repeat(np.arange(test.shape[0]), np.diff(test.indptr))
    return np.unique(rows[np.isin(test.indices, known)]).size / int(test.shape[0])


def most_frequent(truth: sp.csr_matrix, n_labels: int) -> NDArray[np.int64]:
    """Return the most frequent labels; of equally frequent ones, the smaller ids."""
    labels, counts = np.unique(truth.indices, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:n_labels]
    return labels[order].astype(np.int64)


class TopLabelsLR(BaseEstimator):
    """One-vs-all logistic regression for the most frequent labels only.

    Parameters
    ----------
    n_labels : int
        How many labels get a model; the paper takes as many as the trellis has edges.
    C_grid : sequence of float
        Inverse strengths of the L2 penalty. The one with the best precision@1 on held-out
        training rows is taken, the strongest penalty of several; then all rows are used.
    random_state : int or None
        Decides which fifth of the training rows is held out.
    """

    def __init__(
        self,
        n_labels: int,
        C_grid: Sequence[float] = (0.01, 0.1, 1, 10, 100, 1000),
        random_state: int | None = None,
    ) -> None:
        self.n_labels = n_labels
        self.C_grid = C_grid
        self.random_state = random_state

    def fit(self, X: Any, Y: Any) -> TopLabelsLR:
        """Find the most frequent labels, choose C and fit one model a label."""
        X, truth, grid = features(X), label_matrix(Y), sorted(self.C_grid)
        self.labels_ = most_frequent(truth, self.n_labels)
        targets = truth[:, self.labels_].tocsc()
        self.validation_scores_: dict[float, float] = {}
        if len(grid) > 1:
            every, seed = np.arange(X.shape[0]), self.random_state
            rows, held_out = train_test_split(every, test_size=0.2, random_state=seed)
            for c in grid:
                self.coef_, self.intercept_ = fit_all(X[rows], targets[rows], c)
                self.validation_scores_[c] = self.score(X[held_out], truth[held_out])
        self.C_ = max(grid, key=lambda c: self.validation_scores_.get(c, 0.0))
        self.coef_, self.intercept_ = fit_all(X, targets, self.C_)
        return self

    def predict_topk(self, X: Any, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return labels, best first, and their log-odds; -1 where there are fewer than k."""
        odds = np.asarray(features(X) @ self.coef_.T) + self.intercept_
        order = np.argsort(-odds, axis=1, kind="stable")[:, :k]
        ids = np.full((odds.shape[0], k), -1, dtype=np.int64)
        scores = np.full(ids.shape, -np.inf)
        ids[:, : order.shape[1]] = self.labels_[order]
        scores[:, : order.shape[1]] = np.take_along_axis(odds, order, axis=1)
        return ids, scores

    def score(self, X: Any, Y: Any) -> float:
        """Return the precision@1; the truth may hold labels that have no model."""
        return precision_at_k(Y, self.predict_topk(X, 1)[0])


def features(X: Any) -> sp.csr_matrix:
    return sp.csr_matrix(X, dtype=np.float64)  # as liblinear computes


def fit_all(
    X: sp.csr_matrix, targets: sp.csc_matrix, c: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fit one logistic regression for every column of the targets."""
    coef = np.zeros((targets.shape[1], X.shape[1]))
    intercept = np.zeros(targets.shape[1])
    for j in range(targets.shape[1]):
        target = targets[:, [j]].toarray().ravel()
        if target.all() or not target.any():
            intercept[j] = np.inf if target.all() else -np.inf  # nothing to tell apart
        else:
            # The dual has one unknown per row, the primal one per feature. It visits the rows in
            # random order: with a fixed seed, so that only the choice of held-out rows is random.
            dual = X.shape[0] < X.shape[1]
            model = LogisticRegression(
                C=c, solver="liblinear", dual=dual, max_iter=1000, random_state=0
            ).fit(X, target)
            coef[j], intercept[j] = model.coef_[0], model.intercept_[0]
    return coef, intercept
