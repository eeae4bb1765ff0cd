"""Predictions restricted to some labels: the argument `among` of `predict_topk`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ..core.arrays import Ints, check_unmasked, pointers, unframed
from ..features.rows import check_sparse
from .labels import Labels, Targets

_SETS = (list, set, frozenset, np.ndarray)


@dataclass(frozen=True)
class AllowedLabels:
    """The labels that may be predicted: one set for all rows, or one per row.

    Set i is ids[indptr[i]:indptr[i + 1]], increasing and without duplicates.
    """

    indptr: Ints
    ids: Ints

    @classmethod
    def of(cls, indptr: Ints, ids: Ints) -> AllowedLabels:
        """Sort the ids of every set and drop duplicates."""
        sets = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        order = np.lexsort((ids, sets))
        sets, ids = sets[order], ids[order]
        is_first = np.ones(len(ids), bool)
        is_first[1:] = (ids[1:] != ids[:-1]) | (sets[1:] != sets[:-1])
        if not len(ids):
            raise ValueError("among must hold at least one label, got none")
        counts = np.bincount(sets[is_first], minlength=len(indptr) - 1)
        return cls(pointers(counts), ids[is_first])

    @property
    def sizes(self) -> Ints:
        """The number of labels of every set."""
        return np.diff(self.indptr)

    def of_rows(self, rows: slice) -> Ints:
        """Return the ids of rows as a new array, padded with −1 at the end."""
        if len(self.indptr) == 2:
            return np.tile(self.ids, (rows.stop - rows.start, 1))
        sizes = self.sizes[rows]
        ids = np.full((len(sizes), int(sizes.max(initial=0))), -1, np.int64)
        ids[np.arange(ids.shape[1]) < sizes[:, None]] = self.ids[
            self.indptr[rows.start] : self.indptr[rows.stop]
        ]
        return ids


def allowed_labels(among: Any, labels: Labels, n_rows: int | None) -> AllowedLabels:
    """Return the allowed labels: one set for all rows, or one per row.

    Parameters
    ----------
    among : array, list or sparse matrix
        Labels, a list of labels per row, or a mask; see `LTLSClassifier.predict_topk`.
    labels : Labels
        All labels of the model.
    n_rows : int, optional
        If None, `among` must be one set, which is then for any number of rows.
    """
    if hasattr(among, "tocsr"):
        among = among if among.ndim == 2 else among.reshape((1, -1))
        check_sparse(among, "among")
        return _of_mask(csr_array(among), labels, n_rows)
    among = unframed("among", among)
    if isinstance(among, (str, bytes, dict)) or not hasattr(among, "__iter__"):
        raise ValueError(
            "among must be a list of labels, a list of such lists (one per row) or a boolean mask, "
            f"got {among!r}"
        )
    check_unmasked("among", among)
    if isinstance(among, np.ndarray) and among.ndim not in (1, 2):
        raise ValueError(f"among must have one or two dimensions, got shape {among.shape}")
    given = among if isinstance(among, np.ndarray) and among.dtype != object else list(among)
    if _is_mask(given, labels):
        return _of_mask(csr_array(np.atleast_2d(np.array(given, bool))), labels, n_rows)
    per_row = np.ndim(given) == 2 if isinstance(given, np.ndarray) else _are_sets(given)
    if not per_row:
        return _of_labels(np.array([0, len(given)]), given, labels)
    _check_rows(len(given), n_rows)
    if isinstance(given, np.ndarray):
        indptr = np.arange(len(given) + 1) * given.shape[1]
        return _of_labels(indptr, given.reshape(-1), labels)
    sizes = [len(row) for row in given]
    flat = [label for row in given for label in row]
    return _of_labels(pointers(sizes), flat, labels)


def _is_mask(given: Any, labels: Labels) -> bool:
    """Return whether the values are a mask: booleans that are not labels of the model."""
    if isinstance(given, np.ndarray):
        n_classes = len(labels)
        is_number = given.dtype.kind in "iuf" and 2 < given.shape[-1] == n_classes
        if is_number and given.size and given.min() >= 0 and given.max() <= 1:
            raise ValueError(
                f"among must be labels or a boolean mask, got {given.dtype} values from 0 to 1: "
                "pass a mask as bool"
            )
        return bool(given.dtype == bool)
    rows = given if all(isinstance(row, (list, np.ndarray)) for row in given) else [given]
    if not any(len(row) for row in rows):
        return False
    if not all(isinstance(each, (bool, np.bool_)) for row in rows for each in row):
        return False
    if any(isinstance(label, (bool, np.bool_)) for label in labels.values):
        return False
    if len({len(row) for row in rows}) > 1:
        raise ValueError("among must have a boolean for each class, got lists of different lengths")
    return True


def _are_sets(given: list[Any]) -> bool:
    """Return whether a list holds a set of labels per row; a tuple is a label."""
    sets = [isinstance(each, _SETS) for each in given]
    if any(sets) and not all(sets):
        raise ValueError(
            f"among must contain either labels or lists of labels, but entry {sets.index(False)} "
            f"is {given[sets.index(False)]!r}"
        )
    return any(sets)


def _of_labels(indptr: Ints, given: Any, labels: Labels) -> AllowedLabels:
    if isinstance(given, np.ndarray) and given.dtype.kind in "mM":
        given = list(given)  # as the labels are stored
    targets = Targets(indptr, given, True, "lists")
    try:
        ids = labels.ids(targets)
    except TypeError as error:
        raise TypeError(f"among must hold labels that are hashable: {error}") from None
    if (ids < 0).any():
        unknown = given[int(np.flatnonzero(ids < 0)[0])]
        unknown = unknown.item() if isinstance(unknown, np.generic) else unknown
        hint = "; a tuple is one label: pass several as a list" * isinstance(unknown, tuple)
        raise ValueError(f"among must contain only labels in classes_, got {unknown!r}{hint}")
    return AllowedLabels.of(indptr, ids)


def _of_mask(mask: csr_array, labels: Labels, n_rows: int | None) -> AllowedLabels:
    if mask.shape[1] != len(labels):
        raise ValueError(
            f"among must have a column for each of the {len(labels)} classes, got {mask.shape[1]}"
        )
    if mask.shape[0] != 1:
        _check_rows(mask.shape[0], n_rows)
    mask = mask.astype(bool)
    mask.eliminate_zeros()
    ids = mask.indices.astype(np.int64)
    return AllowedLabels.of(mask.indptr.astype(np.int64), ids)


def _check_rows(given: int, n_rows: int | None) -> None:
    if n_rows is None:
        raise ValueError(f"among must be one set of labels for all rows, got {given} sets")
    if given != n_rows:
        raise ValueError(f"among must have one set for each of {n_rows} rows, got {given}")
