"""Ranking metrics at k: averages over rows (precision, recall, nDCG, PSP) and over labels.

Every metric takes the true labels and an array with the ids of the k best labels of every row, best
first; no dense matrix of rows x labels is built. The ids are integers: for other labels, they are
positions in ``classes_``. `calibration_error` takes probabilities instead. Reports and ``ltls
evaluate`` show the metrics in `AT_K`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from ..core.arrays import check_unmasked
from ..model.indicators import label_matrix
from ..parts.propensity import propensities_of

__all__ = [
    "calibration_error",
    "coverage_at_k",
    "label_matrix",
    "macro_f1_at_k",
    "ndcg_at_k",
    "precision_at_k",
    "propensities",
    "propensities_of",
    "psp_at_k",
    "recall_at_k",
]


def calibration_error(hits: ArrayLike, proba: ArrayLike, n_bins: int = 15) -> float:
    """Return the expected calibration error of probabilities.

    Predictions are sorted into bins of equal width by probability. The error is the mean over all
    predictions of the absolute difference between the fraction of hits and the mean probability in
    the bin of the prediction.

    Parameters
    ----------
    hits : array-like of bool
        Whether each prediction is right.
    proba : array-like of the same shape
        The probabilities of the predictions.
    n_bins : int, default=15
        Number of bins.

    Returns
    -------
    float
        Between 0 (perfectly calibrated) and 1.

    Examples
    --------
    >>> from ltls.metrics import calibration_error
    >>> calibration_error([True, True, False, False], [1.0, 0.75, 0.5, 0.25])
    0.25
    """
    check_unmasked("hits", hits)
    check_unmasked("proba", proba)
    right, given = np.ravel(np.asarray(hits, bool)), np.ravel(np.asarray(proba, np.float64))
    if right.shape != given.shape or not len(given):
        raise ValueError(
            f"hits and proba must have the same shape and at least one element, got "
            f"{np.shape(hits)} and {np.shape(proba)}"
        )
    if not ((given >= 0) & (given <= 1 + 1e-6)).all():
        raise ValueError(f"proba must be between 0 and 1, got {given.min()} to {given.max()}")
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1, got {n_bins}")
    number = np.minimum((given * n_bins).astype(int), n_bins - 1)
    gaps = np.bincount(number, right - given, n_bins)
    return float(np.abs(gaps).sum() / len(given))


def precision_at_k(
    y_true: Any, topk: ArrayLike, k: int | None = None, *, sample_weight: ArrayLike | None = None
) -> float:
    """Return precision at k: the fraction of the first k predictions that are true labels.

    Parameters
    ----------
    y_true : array-like of int of shape (n_rows,), or indicator matrix of shape (n_rows, n_labels)
        The true labels; see :func:`label_matrix`.
    topk : array-like of int of shape (n_rows, n_predictions)
        Label ids, best first; -1 for no prediction.
    k : int, optional
        The cutoff; all columns of `topk` by default.
    sample_weight : array-like of shape (n_rows,), optional
        Weight of each row in the average.

    Returns
    -------
    float
        Between 0 and 1, averaged over the rows. A missing prediction counts as a wrong one.

    Examples
    --------
    >>> from ltls.metrics import precision_at_k
    >>> precision_at_k([2, 0, 1], [[2, 0], [1, 0], [0, 2]], k=1)
    0.3333333333333333
    """
    _, hits = _hits(y_true, topk, k)
    return _mean(hits.mean(axis=1), sample_weight)


def recall_at_k(
    y_true: Any, topk: ArrayLike, k: int | None = None, *, sample_weight: ArrayLike | None = None
) -> float:
    """Return recall at k: the fraction of the true labels that are among the first k predictions.

    Parameters are those of :func:`precision_at_k`. A row without a true label counts as 0.

    Examples
    --------
    >>> from ltls.metrics import recall_at_k
    >>> recall_at_k([[1, 1, 0, 0], [0, 0, 0, 1]], [[0, 2], [3, 1]])
    0.75
    """
    truth, hits = _hits(y_true, topk, k)
    return _mean(hits.sum(axis=1) / np.maximum(np.diff(truth.indptr), 1), sample_weight)


def ndcg_at_k(
    y_true: Any, topk: ArrayLike, k: int | None = None, *, sample_weight: ArrayLike | None = None
) -> float:
    """Return the normalized discounted cumulative gain at k.

    A true label at rank r gains 1 / log2(r + 1); the sum is divided by that of a perfect ranking.
    Parameters are those of :func:`precision_at_k`. A row without a true label counts as 0.

    Examples
    --------
    >>> from ltls.metrics import ndcg_at_k
    >>> round(ndcg_at_k([[1, 1, 0, 0], [0, 0, 0, 1]], [[0, 2], [1, 3]]), 4)
    0.622
    """
    truth, hits = _hits(y_true, topk, k)
    gains = 1.0 / np.log2(np.arange(2, hits.shape[1] + 2))
    best = np.cumsum(gains)[np.clip(np.diff(truth.indptr), 1, hits.shape[1]) - 1]
    return _mean(hits @ gains / best, sample_weight)


def psp_at_k(
    y_true: Any,
    topk: ArrayLike,
    propensity: ArrayLike,
    k: int | None = None,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Return propensity-scored precision at k, relative to the best possible.

    A true label has weight 1 / propensity, so that rare labels count more. As in the Extreme
    Classification Repository, the sum over all rows is divided by that of perfect predictions; the
    result is 0 if no row has a true label. `propensity` has one value per label, from
    :func:`propensities` of the training labels; other parameters are those of
    :func:`precision_at_k`.

    References
    ----------
    Jain, Prabhu and Varma, Extreme Multi-label Loss Functions for Recommendation, Tagging,
    Ranking & Other Missing Label Applications, KDD 2016.

    Examples
    --------
    >>> from ltls.metrics import propensities, psp_at_k
    >>> p = propensities([0, 0, 0, 0, 0, 0, 1, 2])
    >>> round(psp_at_k([0, 1, 2], [[0], [1], [0]], p), 4)
    0.6383
    """
    truth, hits = _hits(y_true, topk, k)
    check_unmasked("propensity", propensity)
    p = np.asarray(propensity, dtype=np.float64)
    if p.ndim != 1:
        raise ValueError(f"propensity must have one dimension, got shape {p.shape}")
    if not (np.isfinite(p) & (p > 0)).all():
        label = int(np.argmin(np.isfinite(p) & (p > 0)))
        raise ValueError(
            f"propensity must be positive and finite, got {p[label]} for {label=}; "
            "see propensities()"
        )
    if truth.nnz and truth.indices.max() >= p.size:
        raise ValueError(
            f"propensity must have one value for every label, got {p.size} values and label "
            f"{truth.indices.max()} in y_true"
        )
    ids = np.asarray(topk)[:, : hits.shape[1]]
    gained = np.zeros(hits.shape)
    gained[hits] = 1.0 / p[ids[hits]]
    # The best list of a row: its true labels by decreasing weight, the first k of them.
    rows = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr))
    weight = 1.0 / p[truth.indices]
    weight = weight[np.lexsort((-weight, rows))]
    rank = np.arange(truth.nnz) - truth.indptr[rows]
    weight *= rank < hits.shape[1]
    possible = np.bincount(rows, weight, minlength=truth.shape[0]).astype(np.float64)
    best = _mean(possible, sample_weight)
    return _mean(gained.sum(axis=1), sample_weight) / best if best > 0 else 0.0


def macro_f1_at_k(
    y_true: Any, topk: ArrayLike, k: int | None = None, *, sample_weight: ArrayLike | None = None
) -> float:
    """Return macro-F1 at k: the F1 score of every label, averaged over the labels.

    The first k predictions of a row are its predicted labels. The F1 score of a label is 2 · tp /
    (n_predicted + n_true), where tp is the number of rows for which it is predicted and true. Every
    label has the same weight. Macro-averaged precision alone would reward models that hardly ever
    predict rare labels; recall alone, those that often do. Labels without a row in `y_true` are
    left out; papers that average over all labels count them as 0. Parameters are those of
    :func:`precision_at_k`.

    References
    ----------
    Schultheis, Wydmuch, Kotłowski, Babbar and Dembczyński, Generalized Test Utilities for Long-Tail
    Performance in Extreme Multi-label Classification, NeurIPS 2023.

    Examples
    --------
    >>> from ltls.metrics import macro_f1_at_k
    >>> round(macro_f1_at_k([0, 0, 0, 1], [[0], [0], [0], [0]]), 4)
    0.4286
    """
    truth, hits = _hits(y_true, topk, k)
    weight = _weights(sample_weight, truth.shape[0])
    ids = np.asarray(topk)[:, : hits.shape[1]].astype(np.int64)
    labels = np.unique(truth.indices)

    def count(rows: NDArray[Any], which: NDArray[Any]) -> NDArray[np.float64]:
        known = np.isin(which, labels)
        at = np.searchsorted(labels, which[known])
        return np.bincount(at, weight[rows[known]], minlength=labels.size).astype(np.float64)

    rows = np.broadcast_to(np.arange(truth.shape[0])[:, None], ids.shape)
    n_true = count(np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr)), truth.indices)
    n_predicted = count(rows.ravel(), ids.ravel())
    counted = n_true > 0
    f1 = 2 * count(rows[hits], ids[hits])[counted] / (n_predicted + n_true)[counted]
    return float(f1.mean()) if f1.size else 0.0


def coverage_at_k(y_true: Any, topk: ArrayLike, k: int | None = None) -> float:
    """Return coverage at k: the fraction of labels that are predicted correctly at least once.

    Only labels with at least one row in `y_true` are considered; the result is 0 if there are none.
    Parameters are those of :func:`precision_at_k`.

    Examples
    --------
    >>> from ltls.metrics import coverage_at_k
    >>> coverage_at_k([0, 0, 1, 2], [[0, 2], [0, 1], [2, 0], [1, 2]])
    0.6666666666666666
    """
    truth, hits = _hits(y_true, topk, k)
    found = np.asarray(topk)[:, : hits.shape[1]][hits]
    return np.unique(found).size / max(np.unique(truth.indices).size, 1)


def propensities(
    y_train: Any, a: float = 0.55, b: float = 1.5, n_labels: int | None = None
) -> NDArray[np.float64]:
    """Estimate the probability that a true label is recorded, from the frequency of each label.

    Parameters
    ----------
    y_train : array-like of int of shape (n_rows,), or indicator matrix of shape (n_rows, n_labels)
        The training labels; see :func:`label_matrix`.
    a, b : float, default=0.55 and 1.5
        The constants A and B of Jain et al. The Extreme Classification Repository uses 0.5 and 0.4
        for its Wikipedia data sets, 0.6 and 2.6 for Amazon, and the defaults for all others.
    n_labels : int, optional
        The number of labels; needed if the last ones have no training row.

    Returns
    -------
    array of shape (n_labels,)
        Above 0 and at most 1. With fewer than three rows, all are 1.

    Examples
    --------
    >>> from ltls.metrics import propensities
    >>> propensities([0, 0, 0, 0, 0, 0, 1, 2]).round(4)
    array([0.629 , 0.4809, 0.4809])
    """
    truth = label_matrix(y_train, "y_train")
    n_rows, width = truth.shape
    if n_labels is not None and n_labels < width:
        raise ValueError(f"n_labels must be at least the {width} of y_train, got {n_labels}")
    counts = np.bincount(truth.indices, minlength=width if n_labels is None else n_labels)
    return propensities_of(counts, n_rows, a, b)


# Metrics of an evaluation: their names in tables, and functions of the true labels, the
# predictions, k and the propensities of the labels.
Metric: TypeAlias = Callable[[sp.csr_matrix, NDArray[np.int64], int, NDArray[np.float64]], float]
AT_K: dict[str, tuple[str, Metric]] = {
    "precision": ("P@k", lambda truth, topk, k, _: precision_at_k(truth, topk, k)),
    "recall": ("R@k", lambda truth, topk, k, _: recall_at_k(truth, topk, k)),
    "ndcg": ("nDCG@k", lambda truth, topk, k, _: ndcg_at_k(truth, topk, k)),
    "psp": ("PSP@k", lambda truth, topk, k, propensity: psp_at_k(truth, topk, propensity, k)),
    "macro_f1": ("macro-F1@k", lambda truth, topk, k, _: macro_f1_at_k(truth, topk, k)),
    "coverage": ("coverage@k", lambda truth, topk, k, _: coverage_at_k(truth, topk, k)),
}


def _hits(y_true: Any, topk: ArrayLike, k: int | None) -> tuple[sp.csr_matrix, NDArray[np.bool_]]:
    """Check the arguments; return the true labels, and which of the first k are true."""
    truth = label_matrix(y_true, "y_true")
    check_unmasked("topk", topk)
    ids = np.asarray(topk)
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise ValueError(
            "topk must be a 2-d array of integer label ids, (n_rows, n_predictions), "
            f"got {ids.ndim} dimensions of {ids.dtype}"
        )
    n_rows, width = ids.shape
    if n_rows != truth.shape[0]:
        raise ValueError(f"topk must have {truth.shape[0]} rows, like y_true, got {n_rows}")
    if k is None:
        k = width
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 1 <= k <= width:
        raise ValueError(
            f"k must be an integer from 1 to {width}, the number of columns of topk, got {k!r}"
        )
    ids = ids[:, :k].astype(np.int64)
    if ids.min() < -1:
        raise ValueError(f"topk must hold label ids, or -1 for no prediction, got {ids.min()}")
    ordered = np.sort(ids, axis=1)
    repeated = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if repeated.any():
        row = int(np.flatnonzero(repeated.any(axis=1))[0])
        raise ValueError(f"topk must name a label at most once in a row, got {ids[row]} in {row=}")
    predicted = ids >= 0
    if np.ndim(y_true) == 1:
        predicted &= ids < truth.shape[1]  # the number of labels cannot be inferred from label ids
    elif ids.max() >= truth.shape[1]:
        most = truth.shape[1]
        raise ValueError(
            f"topk must hold ids below {most}, the number of columns of y_true, got {ids.max()}"
        )
    rows = np.broadcast_to(np.arange(n_rows)[:, None], ids.shape)
    hits = np.zeros(ids.shape, dtype=bool)
    hits[predicted] = np.asarray(truth[rows[predicted], ids[predicted]]).ravel()
    return truth, hits


def _mean(values: NDArray[np.float64], sample_weight: ArrayLike | None) -> float:
    """Return the (weighted) average over the rows."""
    return float(np.average(values, weights=_weights(sample_weight, len(values))))


def _weights(sample_weight: ArrayLike | None, n_rows: int) -> NDArray[np.float64]:
    """Return the checked weights of the rows, 1 by default."""
    if sample_weight is None:
        return np.ones(n_rows)
    check_unmasked("sample_weight", sample_weight)
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n_rows,):
        raise ValueError(
            f"sample_weight must have shape {(n_rows,)}, one weight per row, got {weight.shape}"
        )
    wrong = ~np.isfinite(weight) | (weight < 0)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"sample_weight must be finite and at least 0, got {weight[row]} in {row=}"
        )
    if not weight.any():
        raise ValueError("sample_weight must have a weight above 0, got only 0")
    return weight
