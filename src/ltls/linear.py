"""The linear model: features in, edge scores out; and its weights while they are learned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _engine
from .arrays import threads
from .trellis import Trellis

PADDING = 16  # a trellis' block of a row of W is padded to this many numbers: 64 bytes of float32

# AdaGrad's sums of squared gradients begin here: from 0, the first step of every weight would be a
# full one, however small its gradient, and rare features would count too much.
SQUARES_START = np.float32(0.3)


def padded(n_edges: int) -> int:
    """Return the length of a trellis' block in a row of W."""
    return -(-n_edges // PADDING) * PADDING


def aligned_zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return zeros that begin on a cache line, so that every block does."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 64, np.uint8)
    first = -memory.ctypes.data % 64
    return memory[first : first + size].view(dtype).reshape(shape)


def aligned(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a copy that begins on a cache line."""
    copy = aligned_zeros(array.shape, array.dtype)
    copy[:] = array
    return copy


def engine_features(X: Any, intercept: bool, unit_length: bool) -> _engine.Features:
    """Hand a CSR matrix without duplicates, or a dense one, to the engine, without a copy."""
    if not hasattr(X, "indptr"):
        return _engine.Features.dense(
            np.require(X, requirements=["C", "A"]), intercept, unit_length
        )
    index = X.indices.dtype if X.indices.dtype == X.indptr.dtype else np.int64
    data = np.require(X.data, requirements=["C", "A"])
    indices, indptr = (np.require(part, index, ["C", "A"]) for part in (X.indices, X.indptr))
    return _engine.Features.csr(data, indices, indptr, X.shape[1], intercept, unit_length)


@dataclass(frozen=True)
class LinearModel:
    """Weights that score: one row per feature, and one for the intercept if there is one.

    A row has a padded block of edges for every trellis. `weights` is float32, or float16 or int8
    with one scale per row, and may lie in a mapped file.
    """

    weights: npt.NDArray[Any]
    scales: npt.NDArray[np.float32] | None
    n_edges: int
    n_trellises: int
    intercept: bool
    unit_length: bool  # rows of X are scaled to length 1 before they are scored

    @property
    def n_features(self) -> int:
        """The number of features."""
        return len(self.weights) - self.intercept

    def edge_scores(
        self, features: _engine.Features, first: int, count: int, n_jobs: int | None
    ) -> npt.NDArray[np.float32]:
        """Return h = xW for some rows, blocks and their padding as in W."""
        h = np.empty((count, self.weights.shape[1]), np.float32)
        features.edge_scores(self.stored, self.scales, h, first, threads(n_jobs))
        return h

    @property
    def stored(self) -> npt.NDArray[Any]:
        """The weights as the engine takes them, which has no name for float16."""
        return self.weights.view(np.uint16) if self.weights.dtype == np.float16 else self.weights

    def without_padding(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return rows of W or h with the edges of all trellises and nothing else."""
        blocks = rows.reshape(len(rows), self.n_trellises, -1)
        return blocks[:, :, : self.n_edges].reshape(len(rows), -1)

    def copy(self) -> LinearModel:
        """Return a model that does not change when its learner goes on."""
        return replace(self, weights=aligned(self.weights))

    def dense(self) -> npt.NDArray[np.float32]:
        """Return the weights as numbers, shape (rows, n_trellises · n_edges)."""
        return self.without_padding(self._numbers())

    def _numbers(self) -> npt.NDArray[np.float32]:
        numbers: npt.NDArray[np.float32] = self.weights.astype(np.float32)
        return numbers if self.scales is None else numbers * self.scales[:, None]

    def stored_as(self, dtype: str) -> LinearModel:
        """Return the model with its weights rounded to float32, float16 or int8."""
        if dtype not in ("float32", "float16", "int8"):
            raise ValueError(f"dtype must be 'float32', 'float16' or 'int8', got {dtype!r}")
        weights = self._numbers()
        largest = np.abs(weights).max(axis=1, initial=0)
        if dtype == "int8":
            scales = np.where(largest > 0, largest / 127, 1).astype(np.float32)
            rows = np.rint(weights / scales[:, None]).astype(np.int8)
            return replace(self, weights=aligned(rows), scales=scales)
        if dtype == "float16" and largest.max(initial=0) > np.finfo(np.float16).max:
            raise ValueError("weights are too large for float16; use dtype='float32' or 'int8'")
        return replace(self, weights=weights.astype(dtype), scales=None)


class Learner:
    """The weights of a linear model while it learns, with its optimizer's memory."""

    def __init__(
        self,
        trellis: Trellis,
        n_trellises: int,
        n_features: int,
        *,
        intercept: bool,
        unit_length: bool,
        adagrad: bool,
        average: bool,
        settings: dict[str, Any],
    ) -> None:
        shape = (n_features + intercept, n_trellises * padded(trellis.n_edges))
        self.settings = settings  # of the estimator that made it
        self.intercept = intercept
        self.unit_length = unit_length
        self.n_edges = trellis.n_edges
        self.n_trellises = n_trellises
        self.weights = aligned_zeros(shape, np.float32)
        self.squares = aligned_zeros(shape, np.float32) if adagrad else None
        if self.squares is not None:
            self.squares += SQUARES_START
        self.sums = aligned_zeros(shape, np.float64) if average else None
        self.clock = 1  # examples seen, plus one
        self.epochs = 0
        self._model: tuple[int, float, LinearModel] | None = None

    def learn(
        self,
        task: _engine.TrainTask,
        order: npt.NDArray[np.int64],
        **options: Any,
    ) -> tuple[float, float, int]:
        """Train on rows of a task in this order; return the summed loss, hits and examples."""
        result = task.run(self.weights, self.squares, self.sums, order, step=self.clock, **options)
        self.clock += len(order)
        return result

    def grow(self, trellis: Trellis, edge_map: npt.NDArray[np.int64]) -> None:
        """Move to a larger trellis: old edges keep their weights, new ones start at 0."""
        block, old_block = padded(trellis.n_edges), padded(self.n_edges)

        def moved(old: Any) -> Any:
            if old is None:
                return None
            new = aligned_zeros((len(old), self.n_trellises * block), old.dtype)
            if old is self.squares:
                new += SQUARES_START
            for r in range(self.n_trellises):
                of_trellis = old[:, r * old_block : r * old_block + self.n_edges]
                new[:, r * block + edge_map] = of_trellis
            return new

        self.weights, self.squares, self.sums = map(moved, (self.weights, self.squares, self.sums))
        self.n_edges = trellis.n_edges
        self._model = None

    def go_on_from(self, model: LinearModel, l1: float) -> None:
        """Take a model's weights, as they were before the soft threshold; averages begin anew."""
        weights = model.stored_as("float32").weights
        if weights.shape != self.weights.shape:
            raise ValueError(
                f"the model has weights of shape {weights.shape}, its parameters ask for "
                f"{self.weights.shape}"
            )
        self.weights[:] = weights + np.float32(l1) * np.sign(weights)
        if self.sums is not None:
            self.sums[:] = 0
            self.clock = 1
        self._model = None

    def model(self, l1: float) -> LinearModel:
        """Return the weights that score: averaged, and soft-thresholded under L1."""
        if self._model is None or self._model[:2] != (self.clock, l1):
            self._model = self.clock, l1, self._make_model(l1)
        return self._model[2]

    def _make_model(self, l1: float) -> LinearModel:
        weights = self.weights
        if self.sums is not None:
            weights = aligned((weights - self.sums / self.clock).astype(np.float32))
        if l1 > 0:
            limit = np.float32(l1)
            weights = aligned(weights - np.clip(weights, -limit, limit))
        return LinearModel(
            weights, None, self.n_edges, self.n_trellises, self.intercept, self.unit_length
        )
