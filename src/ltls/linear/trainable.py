"""Weights while they are trained, with the optimizer's state."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _engine
from ..structure.trellis import Trellis
from .weights import SQUARES_START, LinearModel, aligned, aligned_zeros, padded

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
        trellis: Trellis,
        features: _engine.Features,
        order: npt.NDArray[np.int64],
        label_ptr: npt.NDArray[np.int64],
        labels: npt.NDArray[np.int64],
        paths: npt.NDArray[np.int64],
        **how: Any,
    ) -> tuple[float, float, int]:
        """Learn from the rows that `order` names; return the summed loss, hits and examples.

        The labels of row i are labels[label_ptr[i]:label_ptr[i + 1]]; `paths` has a row for every
        trellis with their paths in it, filled in where they are −1 and have to be assigned.
        """
        result = _engine.train(
            trellis._engine,
            features,
            self.weights,
            self.squares,
            self.sums,
            clock=self.clock,
            order=order,
            label_ptr=label_ptr,
            labels=labels,
            paths=paths,
            **how,
        )
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
