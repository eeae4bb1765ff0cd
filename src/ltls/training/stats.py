"""Statistics of streamed batches, from a first pass over them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..features.mapping import used_features
from ..features.scaling import ScaleStats, Standardizer, sum_of_squares, typical_length
from ..model.examples import Examples
from ..model.labels import Labels, Targets
from ..structure.policies import LabelStats
from .build import label_vectors

Ints: TypeAlias = npt.NDArray[np.int64]

ROWS_FOR_VECTORS = 16  # rows of a label from which its vector is computed
ROWS_FOR_BUCKETS = 32  # the same where labels may share paths
_SAMPLE_VALUES = 1 << 25  # non-zeros of all sampled rows together


class DatasetStats:
    """Rows, features, labels and their counts over all batches.

    Parameters
    ----------
    sample_per_label : int, default=0
        How many of the first rows of every label to keep: for codebook policies that need label
        vectors, and for buckets.
    """

    def __init__(self, sample_per_label: int = 0) -> None:
        self.n_rows = self.n_features = self.nnz = 0
        self.largest = 0  # values of a batch
        self.multilabel = False
        self.target_format = "single"
        self.n_columns: int | None = None
        self.sparse = False
        self.used: Ints | None = None  # the features that occur, if rows are sparse
        self._seen = Labels()  # in order of appearance
        self._counts: Ints = np.zeros(0, np.int64)
        self._rows_by_labels: Ints = np.zeros(1, np.int64)  # rows with 0, 1, 2, … labels
        self._per_label = sample_per_label
        self._sample: list[Examples] = []
        self.sample: Examples | None = None  # the rows that were kept, set by `labels`
        self._room = _SAMPLE_VALUES
        self._scale: ScaleStats | None = None
        self._squares = 0.0  # of the lengths of dense rows

    def add(self, X: Any, targets: Targets, scale: bool = False) -> None:
        """Add a batch; with `scale`, also what its features' means and deviations are."""
        if self.n_rows and targets.n_columns != self.n_columns:
            raise ValueError(
                "batches must all have indicator matrices of the same number of columns, or none, "
                f"got {targets.n_columns} columns after {self.n_columns}"
            )
        if scale:
            self._scale = self._scale or ScaleStats()
            self._scale.add(X)
        self.n_rows += X.shape[0]
        n_values = int(X.nnz if hasattr(X, "indptr") else X.size)
        self.nnz, self.largest = self.nnz + n_values, max(self.largest, n_values)
        self.n_features, self.n_columns = X.shape[1], targets.n_columns
        self.sparse = hasattr(X, "indptr")
        if not self.sparse:
            self._squares += sum_of_squares(X)
        used = used_features(X)
        if used is not None:
            self.used = used if self.used is None else np.union1d(self.used, used)
        if targets.multilabel and not self.multilabel:
            self.multilabel, self.target_format = True, targets.format
        self._seen.add(targets)
        ids = self._seen.ids(targets)
        before = _padded(self._counts, len(self._seen))
        self._counts = before + np.bincount(ids, minlength=len(self._seen))
        per_row = np.bincount(np.diff(targets.indptr))
        longest = max(len(per_row), len(self._rows_by_labels))
        self._rows_by_labels = _padded(self._rows_by_labels, longest) + _padded(per_row, longest)
        if self._per_label and self._room > 0:
            rows = _first_rows_of_labels(ids, targets.indptr, before, self._per_label)
            self._keep(Examples(X, targets.indptr, ids, None, True).take(rows))

    def merge(self, other: DatasetStats) -> None:
        """Add the statistics of later batches, which `other` has collected."""
        if self.n_rows and other.n_rows and other.n_columns != self.n_columns:
            raise ValueError(
                "batches must all have indicator matrices of the same number of columns, or none, "
                f"got {other.n_columns} columns after {self.n_columns}"
            )
        self.n_rows += other.n_rows
        self.nnz += other.nnz
        self._squares += other._squares
        self.n_features = max(self.n_features, other.n_features)
        self.n_columns, self.sparse = other.n_columns, other.sparse
        if other.used is not None:
            self.used = other.used if self.used is None else np.union1d(self.used, other.used)
        if other.multilabel and not self.multilabel:
            self.multilabel, self.target_format = True, other.target_format
        self._seen.extend(other._seen.values)
        ids = self._seen.ids(self._targets(other._seen.values))
        before = _padded(self._counts, len(self._seen))
        self._counts = before.copy()
        self._counts[ids] += other._counts
        longest = max(len(other._rows_by_labels), len(self._rows_by_labels))
        self._rows_by_labels = _padded(self._rows_by_labels, longest) + _padded(
            other._rows_by_labels, longest
        )
        for part in other._sample if self._room > 0 else []:
            labelled = replace(part, labels=ids[part.labels])
            rows = _first_rows_of_labels(labelled.labels, part.indptr, before, self._per_label)
            before = before + np.bincount(labelled.labels, minlength=len(before))
            self._keep(labelled.take(rows))

    def _keep(self, sample: Examples) -> None:
        self._sample.append(sample)
        self._room -= int(getattr(sample.X, "nnz", sample.X.size))

    @property
    def n_labels(self) -> int:
        """The number of different labels."""
        return len(self._seen)

    def standardizer(self, standardize: bool | str) -> Standardizer | None:
        """Return how features are standardized, None if they are not."""
        return None if self._scale is None else self._scale.standardizer().if_wanted(standardize)

    def row_length(self, standardizer: Standardizer | None) -> float:
        """Return the typical length of dense rows, given how they are standardized."""
        if standardizer is not None:
            return typical_length(float((standardizer.scale != 1).sum()), 1)
        return typical_length(self._squares, self.n_rows)

    def labels(self, standardizer: Standardizer | None = None) -> tuple[Labels, LabelStats]:
        """Return all labels, sorted if they can be, and their statistics.

        Vectors of labels are those of standardized rows.
        """
        labels = Labels.sorted(self._targets(self._seen.values))
        order = self._seen.ids(self._targets(labels.values))
        vectors = None
        if self._sample:
            self.sample = Examples.concatenate(self._sample)
            self._sample = []
            self.sample.labels = np.argsort(order)[self.sample.labels]
            self.sample.multilabel = self.multilabel
            if standardizer is not None:
                self.sample.X = standardizer(self.sample.X)
            vectors = label_vectors(
                self.sample.X, self.sample.indptr, self.sample.labels, len(labels)
            )
        return labels, LabelStats(len(labels), self._counts[order], vectors)

    def typical_labels(self) -> int:
        """Return the 99th percentile of the number of labels per row."""
        rank = np.ceil(0.99 * (self.n_rows - 1))
        return int(np.searchsorted(np.cumsum(self._rows_by_labels), rank, side="right"))

    def _targets(self, labels: Any) -> Targets:
        indptr = np.zeros(1, np.int64)
        return Targets(indptr, labels, self.multilabel, self.target_format, self.n_columns)


def _padded(counts: Ints, length: int) -> Ints:
    return np.pad(counts, (0, length - len(counts)))


def _first_rows_of_labels(ids: Ints, indptr: Ints, before: Ints, limit: int) -> Ints:
    """Return the rows that are among the first few of a label, which occurred `before` times."""
    order = np.argsort(ids, kind="stable")
    starts = np.searchsorted(ids[order], np.arange(len(before)))
    times = np.empty(len(ids), np.int64)
    times[order] = np.arange(len(ids)) - starts[ids[order]]
    early = before[ids] + times < limit
    row_of = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    rows: Ints = np.unique(row_of[early])
    return rows
