"""The linear model: features in, edge scores out; and its weights while they are learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _engine
from .arrays import threads
from .trellis import Trellis

PADDING = 16  # rows of W are padded to this many numbers, a cache line of float32


def padded(n_edges: int) -> int:
    """Return the length of a row of W."""
    return -(-n_edges // PADDING) * PADDING


def engine_features(X: Any, intercept: bool) -> _engine.Features:
    """Hand a CSR or dense matrix to the engine, without a copy."""
    if not hasattr(X, "indptr"):
        return _engine.Features.dense(X, intercept)
    if not X.has_canonical_format:  # duplicate entries count as their sum
        X = X.copy()
        X.sum_duplicates()
    indptr = X.indptr if X.indptr.dtype == X.indices.dtype else X.indptr.astype(X.indices.dtype)
    return _engine.Features.csr(X.data, X.indices, indptr, X.shape[1], intercept)


@dataclass(frozen=True)
class LinearModel:
    """Weights that score: one row per feature, and one for the intercept if there is one.

    `weights` is float32, or float16 or int8 with one scale per row, and may lie in a mapped file.
    """

    weights: npt.NDArray[Any]
    scales: npt.NDArray[np.float32] | None
    n_edges: int
    intercept: bool

    @property
    def n_features(self) -> int:
        """The number of features."""
        return len(self.weights) - self.intercept

    def edge_scores(
        self, features: _engine.Features, first: int, count: int, n_jobs: int | None
    ) -> npt.NDArray[np.float32]:
        """Return h = xW for some rows."""
        h = np.empty((count, self.n_edges), np.float32)
        stored = self.weights.view(np.uint16) if self.weights.dtype == np.float16 else self.weights
        features.edge_scores(stored, self.scales, h, first, threads(n_jobs))
        return h

    def copy(self) -> LinearModel:
        """Return a model that does not change when its learner goes on."""
        return LinearModel(self.weights.copy(), self.scales, self.n_edges, self.intercept)

    def dense(self) -> npt.NDArray[np.float32]:
        """Return the weights as numbers, shape (rows, n_edges)."""
        weights: npt.NDArray[np.float32] = self.weights[:, : self.n_edges].astype(np.float32)
        return weights if self.scales is None else weights * self.scales[:, None]

    def stored_as(self, dtype: str) -> LinearModel:
        """Return the model with its weights rounded to float32, float16 or int8."""
        if dtype == "int8":
            weights = self.dense()
            largest = np.abs(weights).max(axis=1, initial=0)
            scales = np.where(largest > 0, largest / 127, 1).astype(np.float32)
            rows = np.zeros((len(weights), padded(self.n_edges)), np.int8)
            rows[:, : self.n_edges] = np.rint(weights / scales[:, None])
            return LinearModel(rows, scales, self.n_edges, self.intercept)
        if dtype not in ("float32", "float16"):
            raise ValueError(f"dtype must be 'float32', 'float16' or 'int8', got {dtype!r}")
        rows = np.zeros((len(self.weights), padded(self.n_edges)), dtype)
        weights = self.dense()
        if dtype == "float16" and np.abs(weights).max(initial=0) > np.finfo(np.float16).max:
            raise ValueError("weights are too large for float16; use dtype='float32' or 'int8'")
        rows[:, : self.n_edges] = weights
        return LinearModel(rows, None, self.n_edges, self.intercept)


class Learner:
    """The weights of a linear model while it learns, with its optimizer's memory."""

    def __init__(
        self, trellis: Trellis, n_features: int, *, intercept: bool, adagrad: bool, average: bool
    ) -> None:
        shape = (n_features + intercept, padded(trellis.n_edges))
        self.intercept = intercept
        self.n_edges = trellis.n_edges
        self.weights = np.zeros(shape, np.float32)
        self.squares = np.zeros(shape, np.float32) if adagrad else None
        self.sums = np.zeros(shape, np.float64) if average else None
        self.clock = 1  # examples seen, plus one
        self.epochs = 0
        self._model: tuple[int, float, LinearModel] | None = None

    def learn(
        self,
        trellis: Trellis,
        features: _engine.Features,
        order: npt.NDArray[np.int64],
        rows: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]],
        example_weights: npt.NDArray[np.float32] | None,
        ranking: _engine.TableCodebook | None,
        **how: Any,
    ) -> tuple[float, int, int]:
        """Learn from the rows that `order` names; return the summed loss, hits and examples.

        `rows` holds the rows' labels: where each row's begin, the labels, and their paths, which
        are filled in where they are −1 and `ranking` assigns them.
        """
        result = _engine.train(
            trellis._engine,
            features,
            self.weights,
            self.squares,
            self.sums,
            clock=self.clock,
            order=order,
            label_ptr=rows[0],
            labels=rows[1],
            paths=rows[2],
            example_weights=example_weights,
            codebook=ranking,
            **how,
        )
        self.clock += len(order)
        return result

    def grow(self, trellis: Trellis, edge_map: npt.NDArray[np.int64]) -> None:
        """Move to a larger trellis: old edges keep their weights, new ones start at 0."""

        def moved(old: Any) -> Any:
            if old is None:
                return None
            new = np.zeros((len(old), padded(trellis.n_edges)), old.dtype)
            new[:, edge_map] = old[:, : self.n_edges]
            return new

        self.weights, self.squares, self.sums = map(moved, (self.weights, self.squares, self.sums))
        self.n_edges = trellis.n_edges
        self._model = None

    def model(self, l1: float) -> LinearModel:
        """Return the weights that score: averaged, and soft-thresholded under L1."""
        if self._model is None or self._model[:2] != (self.clock, l1):
            self._model = self.clock, l1, self._make_model(l1)
        return self._model[2]

    def _make_model(self, l1: float) -> LinearModel:
        weights = self.weights
        if self.sums is not None:
            weights = (weights - self.sums / self.clock).astype(np.float32)
        if l1 > 0:
            limit = np.float32(l1)
            weights = weights - np.clip(weights, -limit, limit)
        return LinearModel(weights, None, self.n_edges, self.intercept)
