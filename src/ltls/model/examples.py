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
    """Rows to learn from: features, labels as ids, and a weight for each row."""

    X: Any
    indptr: Ints
    labels: Ints
    weights: npt.NDArray[np.float32] | None
    multilabel: bool

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def contains(self, rows: Ints, ids: Ints) -> npt.NDArray[np.bool_]:
        """Return which of the label ids given for some rows are theirs, shape of `ids`."""
        # A row and a label make one number; both lists of numbers are looked up at once.
        n_labels = max(int(ids.max(initial=0)), int(self.labels.max(initial=0))) + 1
        row_of = np.repeat(np.arange(len(self)), np.diff(self.indptr))
        known = self.labels >= 0
        own = row_of[known] * n_labels + self.labels[known]
        return np.isin(rows[:, None] * n_labels + ids, own) & (ids >= 0)


def chosen(examples: Examples, rows: Ints) -> Examples:
    """Return some rows, copied."""
    indptr = examples.indptr
    counts = np.diff(indptr)[rows]
    bounds = np.concatenate([[0], np.cumsum(counts)])
    at = np.arange(bounds[-1]) + np.repeat(indptr[rows] - bounds[:-1], counts)
    weights = None if examples.weights is None else examples.weights[rows]
    return Examples(examples.X[rows], bounds, examples.labels[at], weights, examples.multilabel)


def joined(parts: list[Examples]) -> Examples:
    """Return the rows of several parts as one."""
    features = [part.X for part in parts]
    X = vstack(features, "csr") if hasattr(features[0], "indptr") else np.concatenate(features)
    starts = np.cumsum([0, *(part.indptr[-1] for part in parts)])
    indptr = [part.indptr[1:] + start for part, start in zip(parts, starts, strict=False)]
    weights = None
    if parts[0].weights is not None:
        weights = np.concatenate([part.weights for part in parts if part.weights is not None])
    labels = np.concatenate([part.labels for part in parts])
    return Examples(X, np.concatenate([[0], *indptr]), labels, weights, parts[0].multilabel)
