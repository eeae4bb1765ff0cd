"""Memory: training rows that a model keeps, to find similar ones and to replay them.

The sample is stratified by label: rows are ranked within their label in a pseudo-random order, and
those of the lowest ranks are kept. So all labels keep the same number of rows, if they have that
many. The order depends only on the row number: the same rows are kept whether they come in one
batch or in many, and a smaller memory is a subset of a larger one.

Rows are rounded to 8 bits, with one scale per row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from ..core.arrays import (
    MOST_SCALE,
    AnyArray,
    Floats,
    Ints,
    Tensors,
    as_int8,
    entries_of,
    int8_scales,
    pointers,
    smallest,
)
from ..core.declarations import Array, Described
from ..core.settings import AUTO, Integer, Settings, setting, settings
from ..features.rows import Rows
from .base import Sizes

_ROWS_AT_ONCE = 1 << 14  # that are rounded: this takes several times the memory of the rows
LATE_ROWS = 64  # rows of a late label that are kept before other rows
_OF_ROWS = ("features", "values", "scales", "labels", "weights", "strata", "keys")
_BESIDE = ("beside", "beside_scales")
_MOST_WEIGHT = 1e19  # of a row: the product of the weights of a sample and of a class


@settings
class Memory(Settings):
    """Which training rows a model keeps.

    Stored rows are training data, only rounded: ``memory=False`` stores none, neither in memory nor
    in files. The prototype of a label with a single row resembles that row, too: where rows must
    not be stored, also pass ``prototypes=False``.
    """

    n_rows: int | str = setting(
        Integer(1),
        AUTO,
        default=AUTO,
        help='Maximum number of rows to keep, spread over the labels. "auto" is all rows if '
        "neighbours search them, and 10,000 otherwise.",
    )


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Training rows with their labels.

    Parameters
    ----------
    ptr : int64 array of shape (n_rows + 1,)
        Row i has entries ptr[i] … ptr[i + 1] − 1 of `features` and `values`.
    features : array of integers
        Columns, without the intercept. Features and labels keep the integer type of a mapped file.
    values : int8 array
    scales : float32 array of shape (n_rows,)
        What the values of a row are multiplied by.
    label_ptr, labels : arrays of integers
        The label ids of every row, in the same layout.
    weights : float32 array of shape (n_rows,)
        Weights of the rows in training.
    strata : int64 array of shape (n_rows,)
        The label that a row is kept for: its rarest one when the row arrived; −1 without labels.
    keys : uint32 array of shape (n_rows,)
        The order of the rows.
    first_late : int
        Labels from this id on were added after the first training. Their weights can be trained on
        stored rows only, so they keep more rows, in up to half of the capacity.
    beside : int8 array of shape (n_rows, n_beside), optional
        Dense features beside sparse ones.
    beside_scales : float32 array of shape (n_rows,), optional
    """

    ptr: Ints
    features: AnyArray
    values: AnyArray
    scales: Floats
    label_ptr: Ints
    labels: Ints
    weights: Floats
    strata: Ints
    keys: AnyArray
    first_late: int
    beside: AnyArray | None = None
    beside_scales: Floats | None = None

    def __len__(self) -> int:
        return len(self.scales)

    @classmethod
    def of(
        cls, examples: Any, capacity: int, counts: Ints, first_late: int, first_row: int = 0
    ) -> StoredRows:
        """Return a sample of examples, the first of which has number `first_row`.

        `counts` are the training rows of every label. Rows of weight 0 are never kept.
        """
        rows, label_ptr, labels = examples.rows, examples.indptr, examples.labels
        of_rows = examples.row_weights()
        kept = np.flatnonzero(of_rows > 0)
        strata = _rarest_labels(label_ptr, labels, counts)[kept]
        keys = row_keys(first_row + kept)
        chosen = _lowest(strata, keys, capacity, first_late)
        kept = kept[chosen]
        own_ptr, at = entries_of(label_ptr, kept)
        beside: Any = (None, None)
        if rows.beside is not None:
            beside = _rounded_values(np.asarray(rows.beside.X[kept], np.float32))
        rounded = [
            (_rounded_sparse if rows.sparse else _rounded)(rows.X[kept[at : at + _ROWS_AT_ONCE]])
            for at in range(0, max(len(kept), 1), _ROWS_AT_ONCE)
        ]
        sizes, features, values, scales = map(np.concatenate, zip(*rounded, strict=True))
        return cls(
            pointers(sizes),
            features,
            values,
            scales,
            own_ptr,
            labels[at],
            of_rows[kept],
            strata[chosen],
            keys[chosen],
            first_late,
            *beside,
        )

    def merge(self, other: StoredRows, capacity: int) -> StoredRows:
        """Return a sample of the rows of two samples."""
        both = [
            np.concatenate(pair) for pair in ((self.strata, other.strata), (self.keys, other.keys))
        ]
        kept = _lowest(both[0], both[1], capacity, self.first_late)
        n = len(self)
        mine, theirs = self.take(kept[kept < n]), other.take(kept[kept >= n] - n)
        joined = {
            name: np.concatenate([getattr(mine, name), getattr(theirs, name)])
            for name in (*_OF_ROWS, *(_BESIDE if self.beside is not None else ()))
        }
        for name in ("ptr", "label_ptr"):
            first, second = getattr(mine, name), getattr(theirs, name)
            joined[name] = np.concatenate([first, first[-1] + second[1:]])
        return StoredRows(**joined, first_late=self.first_late)

    def shrink(self, capacity: int) -> StoredRows:
        """Return the sample of a smaller capacity."""
        if len(self) <= capacity:
            return self
        return self.take(_lowest(self.strata, self.keys, capacity, self.first_late))

    def take(self, rows: Ints) -> StoredRows:
        """Return some of the rows."""
        ptr, at = entries_of(self.ptr, rows)
        label_ptr, labels_at = entries_of(self.label_ptr, rows)
        names = ("scales", "weights", "strata", "keys", *(() if self.beside is None else _BESIDE))
        return replace(
            self,
            ptr=ptr,
            features=self.features[at],
            values=self.values[at],
            label_ptr=label_ptr,
            labels=self.labels[labels_at],
            **{name: getattr(self, name)[rows] for name in names},
        )

    def grow(self, n_new_columns: int, others: int) -> StoredRows:
        """Return the rows after features were added before column `others`."""
        features = self.features.astype(np.int32)
        moved = features + np.int32(n_new_columns)
        return replace(self, features=np.where(features < others, features, moved))

    def rows_like(self, rows: Rows) -> Rows:
        """Return the rows, sparse or dense like the given ones."""
        values = self.values * np.repeat(self.scales, np.diff(self.ptr))
        X = csr_array((values, self.features, self.ptr), shape=(len(self), rows.X.shape[1]))
        beside = None
        if self.beside is not None and self.beside_scales is not None:
            beside = self.beside * self.beside_scales[:, None]
        return rows.like(X if rows.sparse else X.toarray(), beside)

    # Files

    TENSORS: ClassVar[dict[str, Array]] = {
        "counts": Array("uint", ("n_rows",), total="n_values", group="sparse"),
        "features": Array(
            "uint", ("n_values",), high="n_inputs - 1", increasing="counts", group="sparse"
        ),
        "values": Array("i1", ("n_values",), group="sparse"),
        "vectors": Array("i1", ("n_rows", "n_inputs"), group="dense"),
        "scales": Array("f4", ("n_rows",), low=0, high=MOST_SCALE),
        "label_counts": Array("uint", ("n_rows",), total="n_pairs", group="several"),
        "labels": Array("uint", ("n_pairs",), high="n_labels - 1"),
        "strata": Array("uint", ("n_rows",), high="n_labels", group="several"),
        "weights": Array("f4", ("n_rows",), low=0, high=_MOST_WEIGHT, group="weights"),
        "keys": Array("u4", ("n_rows",)),
        "beside": Array("i1", ("n_rows", "n_beside"), group="beside"),
        "beside_scales": Array("f4", ("n_rows",), low=0, high=MOST_SCALE, group="beside"),
    }

    def vectors(self, n_inputs: int) -> AnyArray:
        """Return the values as an int8 array of shape (n_rows, n_inputs)."""
        found = np.zeros((len(self), n_inputs), np.int8)
        found[np.repeat(np.arange(len(self)), np.diff(self.ptr)), self.features] = self.values
        return found

    def state(self, multilabel: bool, n_inputs: int) -> tuple[dict[str, Any], Tensors]:
        """Return a JSON description and tensors; rows with few zeros are stored densely."""
        tensors: Tensors = {
            "scales": self.scales,
            "labels": smallest(self.labels),
            "keys": self.keys,
        }
        features = smallest(self.features)
        if features.nbytes + self.values.nbytes < len(self) * n_inputs:
            tensors |= {"features": features, "values": self.values}
            tensors["counts"] = smallest(np.diff(self.ptr))
        else:
            tensors["vectors"] = self.vectors(n_inputs)
        if multilabel:
            tensors["label_counts"] = smallest(np.diff(self.label_ptr))
            tensors["strata"] = smallest(self.strata + 1)
        if (self.weights != 1).any():
            tensors["weights"] = self.weights
        if self.beside is not None and self.beside_scales is not None:
            tensors |= {"beside": self.beside, "beside_scales": self.beside_scales}
        return {"first_late": self.first_late}, tensors

    @classmethod
    def from_state(cls, section: Described, sizes: Sizes) -> StoredRows:
        """Restore rows from their `state`."""
        known = {
            "n_inputs": sizes.n_columns - sizes.intercept,
            "n_labels": sizes.n_labels,
            "n_beside": sizes.n_beside,
        }
        tensors = section.tensors(cls.TENSORS, known)
        if ("vectors" in tensors) == ("values" in tensors):
            raise ValueError("rows must be either sparse or dense")
        if ("beside" in tensors) != (sizes.n_beside > 0):
            raise ValueError("rows must have dense features if, and only if, the model has")
        if "vectors" in tensors:
            counts, features, values = _nonzero(tensors["vectors"])
            ptr = pointers(counts)
        else:
            ptr = pointers(tensors["counts"])
            features, values = tensors["features"], tensors["values"]
        if ("label_counts" in tensors) != sizes.multilabel:
            raise ValueError("rows must have label counts if they may have several labels")
        n, labels = known["n_rows"], tensors["labels"]
        label_counts, strata = np.ones(n, np.int64), labels
        if sizes.multilabel:
            label_counts = tensors["label_counts"].astype(np.int64)
            strata = tensors["strata"].astype(np.int64) - 1
        elif len(labels) != n:
            raise ValueError(f"{n} rows must have a label each, got {len(labels)}")
        # Large arrays stay views of the file.
        return cls(
            ptr,
            features,
            values,
            tensors["scales"],
            pointers(label_counts),
            labels,
            tensors.get("weights", np.ones(n, np.float32)),
            strata.astype(np.int64),
            tensors["keys"],
            section.integer("first_late", 0),
            tensors.get("beside"),
            tensors.get("beside_scales"),
        )


def row_keys(numbers: Ints) -> AnyArray:
    """Return pseudo-random numbers for the numbers of rows (SplitMix64)."""
    with np.errstate(over="ignore"):
        z = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(32)).astype(np.uint32)


def _lowest(strata: Ints, keys: AnyArray, capacity: int, first_late: int) -> Ints:
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


def _rarest_labels(label_ptr: Ints, labels: Ints, counts: Ints) -> Ints:
    """Return the rarest label of every row; −1 for a row without labels."""
    n = len(label_ptr) - 1
    row_of = np.repeat(np.arange(n), np.diff(label_ptr))
    order = np.lexsort((labels, counts[labels], row_of))
    strata = np.full(n, -1, np.int64)
    with_labels, at = np.unique(row_of, return_index=True)
    strata[with_labels] = labels[order[at]]
    return strata


def _rounded_sparse(X: Any) -> tuple[Ints, AnyArray, AnyArray, Floats]:
    """Return the numbers of values, features, int8 values and scales of sparse rows."""
    X = csr_array(X)
    X.eliminate_zeros()
    X.sort_indices()
    row_of = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    values, scales = as_int8(X.data, row_of, X.shape[0])
    stored = values != 0
    counts = np.bincount(row_of[stored], minlength=X.shape[0])
    return counts, X.indices[stored].astype(np.int32, copy=False), values[stored], scales


def _rounded(X: AnyArray) -> tuple[Ints, AnyArray, AnyArray, Floats]:
    """Return the numbers of values, features, int8 values and scales of dense rows."""
    values, scales = _rounded_values(X)
    return *_nonzero(values), scales


def _rounded_values(X: AnyArray) -> tuple[AnyArray, Floats]:
    """Return dense rows as int8, and their scales."""
    scales = int8_scales(np.abs(X).max(axis=1, initial=0).astype(np.float32))
    return np.rint(X / scales[:, None]).astype(np.int8), scales


def _nonzero(rows: AnyArray) -> tuple[Ints, AnyArray, AnyArray]:
    """Return the numbers of values, features and values of dense rows, without zeros."""
    stored = rows != 0
    features = np.broadcast_to(np.arange(rows.shape[1], dtype=np.int32), rows.shape)
    return stored.sum(axis=1), features[stored], rows[stored]
