"""Rows to train on: features, label ids and weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import vstack

Ints: TypeAlias = npt.NDArray[np.int64]


@dataclass
class Examples:
    """Rows to train on: features, label ids in CSR layout, and optional row weights."""

    X: Any
    indptr: Ints
    labels: Ints
    weights: npt.NDArray[np.float32] | None
    multilabel: bool

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def contains(self, rows: Ints, ids: Ints) -> npt.NDArray[np.bool_]:
        """Return which of the candidate `ids` of some rows are true labels, an array like `ids`."""
        # Encode each pair of a place in `rows` and a label as one integer, so that a single `isin`
        # suffices.
        counts, at = self._labels_of(rows)
        own = self.labels[at]
        known = own >= 0
        n_labels = max(int(ids.max(initial=0)), int(own.max(initial=0))) + 1
        place = np.repeat(np.arange(len(rows)), counts)
        pairs = place[known] * n_labels + own[known]
        return np.isin(np.arange(len(rows))[:, None] * n_labels + ids, pairs) & (ids >= 0)

    def row_weights(self) -> npt.NDArray[np.float32]:
        """Return the weights of all rows, 1 if none are given."""
        return np.ones(len(self), np.float32) if self.weights is None else self.weights

    def take(self, rows: Ints) -> Examples:
        """Return a copy of some rows."""
        counts, at = self._labels_of(rows)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        weights = None if self.weights is None else self.weights[rows]
        return Examples(self.X[rows], indptr, self.labels[at], weights, self.multilabel)

    def _labels_of(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return how many labels some rows have, and where they are in `labels`."""
        counts = self.indptr[rows + 1] - self.indptr[rows]
        ends = np.cumsum(counts)
        starts = np.repeat(self.indptr[rows] - (ends - counts), counts)
        return counts, np.arange(len(starts)) + starts

    @classmethod
    def concatenate(cls, parts: list[Examples]) -> Examples:
        """Return the rows of several parts as one."""
        features = [part.X for part in parts]
        X = vstack(features, "csr") if hasattr(features[0], "indptr") else np.concatenate(features)
        starts = np.cumsum([0, *(part.indptr[-1] for part in parts)])
        indptr = [part.indptr[1:] + start for part, start in zip(parts, starts, strict=False)]
        weights = None
        if any(part.weights is not None for part in parts):
            weights = np.concatenate([part.row_weights() for part in parts])
        labels = np.concatenate([part.labels for part in parts])
        return cls(X, np.concatenate([[0], *indptr]), labels, weights, parts[0].multilabel)


# Some examples, and the order in which to train on their rows.
Batch: TypeAlias = tuple[Examples, Ints]
