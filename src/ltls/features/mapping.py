"""Compact features: only those that occur in training have weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

Ints: TypeAlias = npt.NDArray[np.int64]

_MAX_USED = 0.5  # of the features: beyond it, a mapping costs more than it saves
_MAX_TABLE = 1 << 22  # features for which a table of all of them is small


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """A numbering of the features that occur, out of many more.

    Hashed features are the usual case: of 2**20 columns a few thousand are ever used. A model then
    has weights for these alone.

    Parameters
    ----------
    n_features : int
        The number of features, used or not.
    used : int64 array
        The features that occur, in the order of their weights.
    """

    n_features: int
    used: Ints

    @classmethod
    def of(cls, n_features: int, used: Ints) -> FeatureMap | None:
        """Return a map of the features that occur, or None if most of them do."""
        return cls(n_features, used) if len(used) <= _MAX_USED * n_features else None

    @property
    def n_columns(self) -> int:
        """The number of columns of a compact matrix: one more, for features that do not occur."""
        return len(self.used) + 1

    @cached_property
    def _table(self) -> npt.NDArray[np.int32] | None:
        """The place of every feature, if that is a table of bearable size."""
        if self.n_features > _MAX_TABLE:
            return None
        places = np.full(self.n_features, len(self.used), np.int32)
        places[self.used] = np.arange(len(self.used), dtype=np.int32)
        return places

    @cached_property
    def _order(self) -> Ints:
        """The order in which the used features are sorted."""
        return np.argsort(self.used)

    def _places(self, features: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the columns of features in a compact matrix."""
        table = self._table
        if table is not None:
            found: npt.NDArray[Any] = table[features]
            return found
        order = self._order
        if not len(order):
            return np.zeros(len(features), np.int64)
        place = np.minimum(np.searchsorted(self.used, features, sorter=order), len(order) - 1)
        places = order[place]
        return np.where(self.used[places] == features, places, len(self.used))

    def compact(self, X: Any) -> Any:
        """Return a matrix with a column for each used feature and a last one for all others.

        Nothing is dropped, so that rows keep their length. The last column has no weights.
        """
        if hasattr(X, "indptr"):
            indptr = X.indptr if X.nnz >= 2**31 else X.indptr.astype(np.int32)
            places = self._places(_indices(X)).astype(indptr.dtype, copy=False)
            values = X.data[: len(places)]
            return csr_array((values, places, indptr), shape=(X.shape[0], self.n_columns))
        others = np.ones(self.n_features, bool)
        others[self.used] = False
        rest = np.linalg.norm(X[:, others], axis=1).astype(X.dtype)
        return np.column_stack([X[:, self.used], rest])

    def extend(self, used: Ints) -> FeatureMap:
        """Return a map that also has other features, after those that it has."""
        return FeatureMap(
            self.n_features, np.concatenate([self.used, np.setdiff1d(used, self.used)])
        )

    def expand(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return one row per feature, given one row per used feature: zeros for the others."""
        full = np.zeros((self.n_features, rows.shape[1]), rows.dtype)
        full[self.used] = rows
        return full


def used_features(X: Any) -> Ints | None:
    """Return the features of a sparse matrix that occur, sorted; None for a dense matrix."""
    if not hasattr(X, "indptr"):
        return None
    if X.shape[1] > _MAX_TABLE:
        return np.unique(_indices(X)).astype(np.int64)
    occurs = np.zeros(X.shape[1], bool)
    occurs[_indices(X)] = True
    return np.flatnonzero(occurs)


def _indices(X: Any) -> npt.NDArray[Any]:
    """Return the features of all rows: a matrix may have room for more, with any numbers in it."""
    indices: npt.NDArray[Any] = X.indices[: X.indptr[-1]]
    return indices
