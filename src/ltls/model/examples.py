"""Rows with labels and weights, for training and evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.preprocessing import normalize
from sklearn.utils import check_array

from ..core.arrays import Bools, Doubles, Floats, Ints, check_unmasked, entries_of
from ..features.rows import Rows
from .labels import Labels, Targets

LARGEST_WEIGHT = 1e9  # of a row or a class


@dataclass
class Examples:
    """Rows to train on: features, label ids in CSR layout, and optional row weights."""

    rows: Rows
    indptr: Ints
    labels: Ints
    weights: Floats | None
    multilabel: bool

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @classmethod
    def of(
        cls,
        labels: Labels,
        rows: Rows,
        targets: Targets,
        sample_weight: Floats | None = None,
        class_weight: Doubles | None = None,
    ) -> Examples:
        """Return rows with label ids and weights.

        The weight of a row is multiplied by the mean weight of its labels.
        """
        ids = labels.ids(targets)
        if targets.multilabel:  # sort the ids of every row, as in a canonical indicator matrix
            row_of = np.repeat(np.arange(targets.n_rows), np.diff(targets.indptr))
            ids = ids[np.lexsort((ids, row_of))]
        weights = sample_weight
        if class_weight is not None:
            of_rows = _mean_weights(class_weight, ids, targets.indptr)
            weights = of_rows if weights is None else weights * of_rows
        return cls(rows, targets.indptr, ids, weights, targets.multilabel)

    def contains(self, ids: Ints) -> Bools:
        """Return whether each of the given ids is a label of its row, an array like `ids`."""
        # Encode each pair of a row and a label as one integer, so that a single `isin` suffices.
        known = self.labels >= 0
        own, row_of = self.labels[known], np.repeat(np.arange(len(self)), np.diff(self.indptr))
        n_labels = max(int(ids.max(initial=0)), int(own.max(initial=0))) + 1
        pairs = row_of[known] * n_labels + own
        return np.isin(np.arange(len(self))[:, None] * n_labels + ids, pairs) & (ids >= 0)

    def row_weights(self) -> Floats:
        """Return the weights of all rows, 1 if none are given."""
        return np.ones(len(self), np.float32) if self.weights is None else self.weights

    def take(self, rows: Ints) -> Examples:
        """Return a copy of some rows."""
        indptr, at = entries_of(self.indptr, rows)
        weights = None if self.weights is None else self.weights[rows]
        return Examples(self.rows[rows], indptr, self.labels[at], weights, self.multilabel)

    def grouped(self, groups: Ints) -> Examples:
        """Return the rows with the groups of their labels as labels; `groups` has one per label."""
        row_of = np.repeat(np.arange(len(self)), np.diff(self.indptr))
        n_groups = int(groups.max(initial=0)) + 1
        pairs = np.unique(row_of * n_groups + groups[self.labels])
        indptr = np.searchsorted(pairs, np.arange(len(self) + 1) * n_groups)
        return Examples(self.rows, indptr, pairs % n_groups, self.weights, self.multilabel)

    def indicators(self, n_labels: int) -> csr_array:
        """Return an indicator matrix, (n_rows, n_labels); rows of weight 0 have no labels."""
        ones = np.repeat(self.row_weights() > 0, np.diff(self.indptr)).astype(np.float32)
        # A copy: zeros are removed in place.
        arrays = (ones, self.labels.copy(), self.indptr.copy())
        matrix = csr_array(arrays, shape=(len(self), n_labels))
        matrix.eliminate_zeros()
        return matrix

    def label_sums(
        self, n_labels: int, unit_length: bool = True
    ) -> tuple[Callable[[slice], csr_array], Ints]:
        """Return the sums of the rows of some labels, and the number of rows of every label.

        The former is a function of a slice of the labels, since the sums of all of them take much
        memory. Rows are scaled to unit length, unless `unit_length` is False.
        """
        matrix, X = self.indicators(n_labels), csr_array(self.rows.X)
        if unit_length and len(self):
            X = normalize(
                csr_array((X.data.copy(), X.indices, X.indptr), shape=X.shape), copy=False
            )
        rows_of_labels = matrix.T.tocsr()

        def sums(labels: slice) -> csr_array:
            found = csr_array(rows_of_labels[labels] @ X)
            found.resize((found.shape[0], self.rows.n_columns))
            found.sort_indices()
            return found

        return sums, np.bincount(matrix.indices, minlength=n_labels)

    @classmethod
    def concatenate(cls, parts: list[Examples]) -> Examples:
        """Return the rows of several parts as one."""
        if len(parts) == 1:
            return parts[0]
        starts = np.cumsum([0, *(part.indptr[-1] for part in parts)])
        indptr = [part.indptr[1:] + start for part, start in zip(parts, starts, strict=False)]
        weights = None
        if any(part.weights is not None for part in parts):
            weights = np.concatenate([part.row_weights() for part in parts])
        labels = np.concatenate([part.labels for part in parts])
        ends = np.concatenate([[0], *indptr])
        rows = Rows.concatenate([part.rows for part in parts])
        return cls(rows, ends, labels, weights, parts[0].multilabel)


def class_weights(
    given: dict[Any, float] | str | None, labels: Labels, counts: Ints, n_rows: int
) -> Doubles | None:
    """Return the weight of every label, None if all are 1.

    "balanced" weights are inversely proportional to `counts`, the rows of every label.
    """
    if given is None:
        return None
    if isinstance(given, str):
        return n_rows / (len(counts) * np.maximum(counts, 1))
    of_labels = np.ones(len(labels))
    for label, weight in given.items():
        if not isinstance(weight, Real) or not 0 <= float(weight) <= LARGEST_WEIGHT:
            raise ValueError(
                f"class_weight must hold numbers from 0 to {LARGEST_WEIGHT:g}, got {weight!r} for "
                f"{label!r}"
            )
        if label in labels:
            of_labels[labels.id(label)] = weight
    return of_labels


def _mean_weights(of_labels: Doubles, ids: Ints, indptr: Ints) -> Floats:
    """Return the mean weight of every row's labels, 1 for a row without labels."""
    n_rows, per_row = len(indptr) - 1, np.diff(indptr)
    sums = np.bincount(np.repeat(np.arange(n_rows), per_row), of_labels[ids], n_rows)
    means = np.where(per_row > 0, sums / np.maximum(per_row, 1), 1)
    return means.astype(np.float32)


def subset_accuracy(labels: Labels, targets: Targets, found: Ints, sample_weight: Any) -> float:
    """Return the fraction of rows whose ids `found`, padded with −1, are exactly the true ones."""
    ids = labels.ids(targets)
    if targets.n_columns == len(labels):  # the columns of `predict`
        ids = targets.labels
    unused: Any = None  # the features
    truth = Examples(unused, targets.indptr, ids, None, targets.multilabel)
    n_hits, n_found = truth.contains(found).sum(axis=1), (found >= 0).sum(axis=1)
    right = (n_hits == n_found) & (n_hits == np.diff(targets.indptr))
    weights = None if sample_weight is None else check_sample_weight(sample_weight, len(truth))
    return float(np.average(right, weights=weights))


def check_sample_weight(sample_weight: Any, n_rows: int) -> Floats:
    """Return sample_weight as one number per row."""
    check_unmasked("sample_weight", sample_weight)
    weights: Floats = check_array(
        np.asarray(sample_weight), ensure_2d=False, dtype=np.float32, input_name="sample_weight"
    )
    if weights.ndim == 0:
        weights = np.full(n_rows, weights)
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight.shape == {weights.shape}, expected ({n_rows},): one weight per row"
        )
    if (weights < 0).any():
        raise ValueError("Negative values in data passed to `sample_weight`")
    if weights.max(initial=0) > LARGEST_WEIGHT:
        raise ValueError(
            f"sample_weight must be at most {LARGEST_WEIGHT:g}, since weights are float32; got "
            f"{weights.max():g}"
        )
    return weights
