"""A bounded sample of training rows that a model keeps, to replay when it is trained further.

The sample is stratified by label: rows are ranked within their label in a pseudo-random order, and
those of the lowest ranks are kept. So no label keeps more rows than another one that would have
more. The order depends on the number of a row alone: the same rows are kept whether they come in
one batch or in many, and a smaller reservoir is a part of a larger one.

Labels that came after the first training are late: the sample is all that their weights can be
trained on, so they keep more rows, in up to half of the places.

Rows are rounded to 8 bits, with one scale per row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from ..linear.weights import int8_scales
from .examples import Examples

Ints: TypeAlias = npt.NDArray[np.int64]

LATE_ROWS = 64  # of a late label that are kept before others


@dataclass(frozen=True, eq=False)
class Reservoir:
    """Training rows with their labels, in a pseudo-random order within every label.

    Parameters
    ----------
    indptr : int64 array of shape (n_rows + 1,)
        Row i has entries indptr[i] … indptr[i + 1] − 1 of `indices` and `values`.
    indices : integer array
        Features, as the model numbers those that occur.
    values : int8 array
    scales : float32 array of shape (n_rows,)
        What the values of a row are multiplied by.
    label_ptr, labels : int64 arrays
        The label ids of every row, in the same layout.
    weights : float32 array of shape (n_rows,)
        Weights of the rows in training.
    strata : int64 array of shape (n_rows,)
        The label that a row is kept for: its rarest one when it came; −1 for a row without labels.
    keys : uint32 array of shape (n_rows,)
        The order of the rows.
    first_late : int
        Labels from this one on are late.
    """

    indptr: Ints
    indices: npt.NDArray[Any]
    values: npt.NDArray[np.int8]
    scales: npt.NDArray[np.float32]
    label_ptr: Ints
    labels: Ints
    weights: npt.NDArray[np.float32]
    strata: Ints
    keys: npt.NDArray[np.uint32]
    first_late: int

    def __len__(self) -> int:
        return len(self.scales)

    @classmethod
    def of(
        cls, examples: Examples, capacity: int, counts: Ints, first_late: int, first_row: int = 0
    ) -> Reservoir:
        """Return a sample of rows, the first of which has number `first_row`.

        Parameters
        ----------
        examples : Examples
            Rows of weight 0 are never kept.
        capacity : int
            How many rows to keep, at most.
        counts : array of shape (n_labels,)
            Training rows per label.
        first_late : int
            Labels from this one on are late.
        first_row : int, default=0
        """
        weights = examples.row_weights()
        rows = np.flatnonzero(weights > 0)
        strata, keys = _rarest_labels(examples, counts)[rows], row_keys(first_row + rows)
        kept = _lowest(strata, keys, capacity, first_late)
        rows = rows[kept]
        part = examples.take(rows)
        X = _as_csr(part.X)
        X.sort_indices()
        row_of = np.repeat(np.arange(len(part)), np.diff(X.indptr))
        scales = int8_scales(_largest_of_rows(X))
        return cls(
            X.indptr.astype(np.int64),
            X.indices,
            np.rint(X.data / scales[row_of]).astype(np.int8),
            scales,
            part.indptr,
            part.labels,
            weights[rows],
            strata[kept],
            keys[kept],
            first_late,
        )

    def merge(self, other: Reservoir, capacity: int) -> Reservoir:
        """Return a sample of the rows of two reservoirs."""
        strata = np.concatenate([self.strata, other.strata])
        keys = np.concatenate([self.keys, other.keys])
        kept = _lowest(strata, keys, capacity, self.first_late)
        n = len(self)
        mine, theirs = self.take(kept[kept < n]), other.take(kept[kept >= n] - n)
        return Reservoir(
            np.concatenate([mine.indptr, mine.indptr[-1] + theirs.indptr[1:]]),
            np.concatenate([mine.indices, theirs.indices]),
            np.concatenate([mine.values, theirs.values]),
            np.concatenate([mine.scales, theirs.scales]),
            np.concatenate([mine.label_ptr, mine.label_ptr[-1] + theirs.label_ptr[1:]]),
            np.concatenate([mine.labels, theirs.labels]),
            np.concatenate([mine.weights, theirs.weights]),
            strata[kept],
            keys[kept],
            self.first_late,
        )

    def shrink(self, capacity: int) -> Reservoir:
        """Return the reservoir of a smaller capacity."""
        if len(self) <= capacity:
            return self
        return self.take(_lowest(self.strata, self.keys, capacity, self.first_late))

    def take(self, rows: Ints) -> Reservoir:
        """Return some of the rows."""
        indptr, at = _entries(self.indptr, rows)
        label_ptr, labels_at = _entries(self.label_ptr, rows)
        return Reservoir(
            indptr,
            self.indices[at],
            self.values[at],
            self.scales[rows],
            label_ptr,
            self.labels[labels_at],
            self.weights[rows],
            self.strata[rows],
            self.keys[rows],
            self.first_late,
        )

    def add_features(self, n: int, n_columns: int) -> Reservoir:
        """Return the reservoir after n features were added before the last of `n_columns`."""
        last = self.indices == n_columns - 1
        return replace(self, indices=np.where(last, self.indices + n, self.indices))

    def examples_like(self, batch: Examples) -> Examples:
        """Return the rows to train on, sparse or dense as the rows of a batch are."""
        values = self.values * np.repeat(self.scales, np.diff(self.indptr))
        X = csr_array((values, self.indices, self.indptr), shape=(len(self), batch.X.shape[1]))
        if not hasattr(batch.X, "indptr"):
            X = X.toarray()
        return Examples(X, self.label_ptr, self.labels, self.weights, batch.multilabel)


def row_keys(numbers: Ints) -> npt.NDArray[np.uint32]:
    """Return pseudo-random numbers for the numbers of rows (SplitMix64)."""
    with np.errstate(over="ignore"):
        z = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(32)).astype(np.uint32)


def _lowest(strata: Ints, keys: npt.NDArray[np.uint32], capacity: int, first_late: int) -> Ints:
    """Return the rows with the lowest ranks within their strata, and of these the lowest keys."""
    if len(strata) <= capacity:
        return np.arange(len(strata))
    order = np.lexsort((keys, strata))
    starts = np.flatnonzero(np.r_[True, np.diff(strata[order]) != 0])
    sizes = np.diff(np.r_[starts, len(strata)])
    ranks = np.empty(len(strata), np.int64)
    ranks[order] = np.arange(len(strata)) - np.repeat(starts, sizes)
    late = strata >= first_late
    n_late = len(np.unique(strata[late]))
    if n_late:  # the first rows of a late label all have rank 0
        quota = np.clip(capacity // (2 * n_late), 1, LATE_ROWS)
        ranks[late] = np.maximum(ranks[late] - quota + 1, 0)
    kept: Ints = np.sort(np.lexsort((keys, ranks))[:capacity])
    return kept


def _rarest_labels(examples: Examples, counts: Ints) -> Ints:
    """Return the label of every row that the fewest rows have; −1 for a row without labels."""
    n = len(examples)
    if not examples.multilabel:
        return examples.labels
    row_of = np.repeat(np.arange(n), np.diff(examples.indptr))
    order = np.lexsort((examples.labels, counts[examples.labels], row_of))
    strata = np.full(n, -1, np.int64)
    with_labels, at = np.unique(row_of, return_index=True)
    strata[with_labels] = examples.labels[order[at]]
    return strata


def _entries(indptr: Ints, rows: Ints) -> tuple[Ints, npt.NDArray[Any]]:
    """Return the row pointers of some rows, and where their entries are."""
    counts = indptr[rows + 1] - indptr[rows]
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    index = np.int32 if len(indptr) and indptr[-1] < 2**31 else np.int64  # a temporary, but large
    at = np.repeat((indptr[rows] - (ends - counts)).astype(index), counts)
    at += np.arange(total, dtype=index)
    return np.concatenate([[0], ends]), at


def _as_csr(X: Any) -> csr_array:
    """Return rows as a CSR matrix; that of dense rows without zeros is known at once."""
    if hasattr(X, "indptr") or not X.size or not X.all():
        return csr_array(X)
    n_rows, n_features = X.shape
    indices = np.tile(np.arange(n_features, dtype=np.int32), n_rows)
    return csr_array((X.ravel(), indices, np.arange(n_rows + 1) * n_features), shape=X.shape)


def _largest_of_rows(X: csr_array) -> npt.NDArray[np.float32]:
    """Return the largest absolute value of every row, 0 for an empty one."""
    largest = np.zeros(X.shape[0], np.float32)
    filled = np.flatnonzero(np.diff(X.indptr))
    if len(filled):  # empty rows in between take nothing from the others
        largest[filled] = np.maximum.reduceat(np.abs(X.data), X.indptr[filled])
    return largest
