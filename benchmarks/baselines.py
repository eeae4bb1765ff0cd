"""The naive baselines of the paper's table 3: what a model of the same size does without a trellis.

A trellis of E edges has the size of E binary models. One can spend these on the E most frequent
labels instead: `oracle` is the best that this could give, `TopLabelsLR` what it gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from ltls.metrics import label_matrix, precision_at_k


def oracle(y_train: Any, y_test: Any, n_labels: int) -> float:
    """Give the precision@1 of a perfect classifier of the training set's most frequent labels.

    Parameters
    ----------
    y_train, y_test : array-like of int of shape (n_rows,), or indicator matrix
        The labels; see :func:`ltls.metrics.label_matrix`.
    n_labels : int
        How many labels the classifier knows.

    Returns
    -------
    float
        The share of test rows that have at least one of these labels. Of equally frequent
        labels the smaller id is taken.
    """
    known = _most_frequent(label_matrix(y_train, "y_train"), n_labels)
    test = label_matrix(y_test, "y_test")
    rows = np.repeat(np.arange(test.shape[0]), np.diff(test.indptr))
    return np.unique(rows[np.isin(test.indices, known)]).size / int(test.shape[0])


class TopLabelsLR(BaseEstimator):
    """One-vs-all logistic regression for the most frequent labels only.

    Parameters
    ----------
    n_labels : int
        How many labels get a model; the paper takes as many as the trellis has edges.
    C_grid : sequence of float, default=(0.01, 0.1, 1, 10, 100, 1000)
        Inverse strengths of the L2 penalty. The one with the best precision@1 on held-out
        training rows is taken, the strongest penalty of several; then all rows are used.
    validation_fraction : float, default=0.2
        The share of the training rows that is held out to choose C.
    random_state : int, numpy.random.RandomState or None, default=None
        What decides which rows are held out.

    Attributes
    ----------
    labels_ : ndarray of int64
        The labels that have a model, most frequent first.
    C_ : float
        The constant that was chosen.
    validation_scores_ : dict of float to float
        Precision@1 on the held-out rows for every C; empty where there was no choice.
    coef_, intercept_ : ndarray of shape (n_labels, n_features) and (n_labels,)
        The models.

    References
    ----------
    Jasinska and Karampatziakis, Log-time and Log-space Extreme Classification, 2016, table 3.
    """

    def __init__(
        self,
        n_labels: int,
        C_grid: Sequence[float] = (0.01, 0.1, 1, 10, 100, 1000),
        validation_fraction: float = 0.2,
        random_state: Any = None,
    ) -> None:
        self.n_labels = n_labels
        self.C_grid = C_grid
        self.validation_fraction = validation_fraction
        self.random_state = random_state

    def fit(self, X: Any, Y: Any) -> TopLabelsLR:
        """Find the most frequent labels, choose C and fit one model a label.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_rows, n_features)
            The features.
        Y : array-like of int of shape (n_rows,), or indicator matrix of shape (n_rows, n_labels)
            The labels.

        Returns
        -------
        TopLabelsLR
            The estimator itself.
        """
        from sklearn.model_selection import train_test_split

        X, truth = self._features(X), label_matrix(Y, "Y")
        if X.shape[0] != truth.shape[0]:
            raise ValueError(f"Y must have the {X.shape[0]} rows of X, got {truth.shape[0]}")
        grid = sorted(float(c) for c in self.C_grid)
        if not grid or grid[0] <= 0 or not np.isfinite(grid).all():
            raise ValueError(f"C_grid must hold positive numbers, got {self.C_grid!r}")
        if not 0 < self.validation_fraction < 1:
            got = self.validation_fraction
            raise ValueError(f"validation_fraction must be between 0 and 1, got {got!r}")
        labels = _most_frequent(truth, self.n_labels)
        targets = truth[:, labels].tocsc()
        scores: dict[float, float] = {}
        if len(grid) > 1:
            if X.shape[0] < 2:
                raise ValueError("X must have at least 2 rows to choose C from C_grid, got 1")
            rows, held_out = train_test_split(
                np.arange(X.shape[0]),
                test_size=self.validation_fraction,
                random_state=self.random_state,
            )
            for c in grid:
                models = _fit_all(X[rows], targets[rows], c)
                best = _rank(X[held_out], labels, *models, k=1)[0]
                scores[c] = precision_at_k(truth[held_out], best)
        self.C_ = max(grid, key=lambda c: scores.get(c, 0.0))
        self.validation_scores_ = scores
        self.coef_, self.intercept_ = _fit_all(X, targets, self.C_)
        self.labels_ = labels
        self.n_features_in_ = int(X.shape[1])
        return self

    def predict_topk(self, X: Any, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Rank the labels that have a model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_rows, n_features)
            The features.
        k : int
            How many labels a row.

        Returns
        -------
        labels : ndarray of int64, shape (n_rows, k)
            Best first; -1 where there are fewer than k labels.
        scores : ndarray of float64, shape (n_rows, k)
            Log-odds of each label; -inf beside a -1.
        """
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self)
        _check_count("k", k)
        X = self._features(X)
        if X.shape[1] != self.n_features_in_:
            raise ValueError(f"X must have {self.n_features_in_} features, got {X.shape[1]}")
        return _rank(X, self.labels_, self.coef_, self.intercept_, k)

    def score(self, X: Any, Y: Any) -> float:
        """Give the precision@1; the truth may hold labels that have no model.

        Parameters
        ----------
        X, Y
            As for :meth:`fit`.

        Returns
        -------
        float
            The share of rows whose best label is true.
        """
        return precision_at_k(Y, self.predict_topk(X, 1)[0])

    def _features(self, X: Any) -> Any:
        from sklearn.utils import check_array

        # liblinear computes in float64 and with 32-bit indices
        return check_array(
            X, accept_sparse="csr", dtype=np.float64, accept_large_sparse=False, input_name="X"
        )


def _check_count(name: str, count: Any) -> None:
    if isinstance(count, bool) or not isinstance(count, Integral) or count < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {count!r}")


def _most_frequent(truth: sp.csr_matrix, n_labels: int) -> NDArray[np.int64]:
    _check_count("n_labels", n_labels)
    labels, counts = np.unique(truth.indices, return_counts=True)
    if labels.size == 0:
        raise ValueError("the training labels must name at least one label, got none")
    order = np.argsort(-counts, kind="stable")[:n_labels]
    most_frequent: NDArray[np.int64] = labels[order].astype(np.int64)
    return most_frequent


def _fit_all(X: Any, targets: Any, c: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fit one logistic regression for every column of the targets."""
    from sklearn.linear_model import LogisticRegression

    coef = np.zeros((targets.shape[1], X.shape[1]))
    intercept = np.zeros(targets.shape[1])
    for j in range(targets.shape[1]):
        target = targets[:, [j]].toarray().ravel()
        if target.all() or not target.any():
            intercept[j] = np.inf if target.all() else -np.inf  # nothing to tell apart
        else:
            # The dual has one unknown a row, the primal one a feature. It visits the rows in random
            # order: with a fixed seed, so that only the choice of held-out rows is random.
            dual = X.shape[0] < X.shape[1]
            model = LogisticRegression(
                C=c, solver="liblinear", dual=dual, max_iter=1000, random_state=0
            ).fit(X, target)
            coef[j], intercept[j] = model.coef_[0], model.intercept_[0]
    return coef, intercept


def _rank(
    X: Any,
    labels: NDArray[np.int64],
    coef: NDArray[np.float64],
    intercept: NDArray[np.float64],
    k: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    odds = np.asarray(X @ coef.T) + intercept
    order = np.argsort(-odds, axis=1, kind="stable")[:, :k]
    ids = np.full((X.shape[0], k), -1, dtype=np.int64)
    scores = np.full((X.shape[0], k), -np.inf)
    ids[:, : order.shape[1]] = labels[order]
    scores[:, : order.shape[1]] = np.take_along_axis(odds, order, axis=1)
    return ids, scores
