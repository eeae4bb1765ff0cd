"""Neighbours: labels of the training rows that resemble a row most.

A label gets q votes, the sum of weight · cos³ over the nearest rows that have it; its score is
log(q / Σ q + 0.01). Nothing is trained, so a label is found from its first row on. The rows are
those of the model's memory. Sparse rows are found by an index of their features; dense ones are all
compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ..core import _engine
from ..core.arrays import Floats, Ints, Tensors, threads
from ..core.caching import cached_property
from ..core.declarations import Described
from ..core.settings import Integer, Settings, setting, settings
from ..features.rows import Rows
from .base import PartExplanation, Sizes, register_part
from .dense_vectors import DenseVectors
from .memory import StoredRows

_SMOOTHING = np.float32(0.01)
_LABELS = 512  # of the nearest rows, that count at most
_EXPLAINED, _SHARED = 5, 10  # rows, and features that each shares


@settings
class Neighbours(Settings):
    """How many stored rows vote for labels."""

    n_neighbors: int = setting(
        Integer(1, 1 << 16), default=30, help="Number of nearest stored rows that vote for labels."
    )


@register_part
@dataclass(frozen=True, eq=False)
class NeighbourPart:
    """The rows of the memory, and how many of them vote."""

    name: ClassVar[str] = "neighbours"
    settings: ClassVar[type[Settings]] = Neighbours
    grid: ClassVar[tuple[float, ...]] = (0.25, 0.5, 1.0, 2.0, 4.0)
    needs_memory: ClassVar[bool] = True

    memory: StoredRows
    n_labels: int
    n_columns: int
    intercept: bool
    dense: bool
    n_neighbors: int

    @cached_property
    def engine(self) -> _engine.LabelledRows:
        """The labels of the rows, and an index of sparse rows."""
        memory, some = self.memory, slice(0, 0 if self.dense else None)
        return _engine.LabelledRows(
            np.zeros_like(memory.ptr) if self.dense else memory.ptr,
            memory.features[some].astype(np.int32, copy=False),
            memory.values[some],
            memory.scales,
            memory.label_ptr,
            memory.labels.astype(np.int64, copy=False),
            self.n_columns - self.intercept,
            self.n_labels,
        )

    @cached_property
    def vectors(self) -> DenseVectors:
        """Dense rows, scaled to unit length."""
        n_inputs = self.n_columns - self.intercept
        integers = self.memory.vectors(n_inputs)
        lengths = np.sqrt(np.einsum("ij,ij->i", integers, integers, dtype=np.float32))
        scales = 1 / np.maximum(lengths, 1)
        ones, none = np.ones(n_inputs, np.float32), np.zeros(len(scales), np.float32)
        return DenseVectors.of(integers, scales, none, ones)

    def nearest(self, rows: Rows, n_jobs: int | None) -> tuple[Ints, Floats]:
        """Return the nearest rows of every row and their cosines, best first; −1 and 0 for none."""
        if self.dense and len(self.memory):
            found, cosines = self.vectors.highest(rows, self.n_neighbors, n_jobs)
            cosines /= rows.lengths[:, None]
            found[cosines <= 0] = -1
            return found, np.maximum(cosines, 0, out=cosines)
        found = np.empty((len(rows), min(self.n_neighbors, max(len(self.memory), 1))), np.int64)
        cosines = np.empty(found.shape, np.float32)
        self.engine.nearest(rows.engine, 0, found, cosines, threads(n_jobs))
        return found, cosines

    @cached_property
    def _most_voted(self) -> int:
        """The number of labels that the nearest rows of a row have at most."""
        per_row = int(np.diff(self.memory.label_ptr).max(initial=1))
        return min(self.n_neighbors * max(per_row, 1), _LABELS, self.n_labels)

    def _votes(self, rows: Rows, n_jobs: int | None) -> tuple[Ints, Floats]:
        """Return labels and their shares of the votes, once for the same rows."""
        if self not in rows.memo:
            labels = np.empty((len(rows), self._most_voted), np.int64)
            shares = np.empty(labels.shape, np.float32)
            nearest, cosines = self.nearest(rows, n_jobs)
            if len(self.memory):  # the engine takes cubes
                cosines *= np.cbrt(self.memory.weights)[nearest]
            self.engine.votes(nearest, cosines, labels, shares, threads(n_jobs))
            rows.memo[self] = labels, shares
        return rows.memo[self]  # type: ignore[no-any-return]

    def candidates(self, rows: Rows, n: int, n_jobs: int | None) -> Ints:
        """Return the n labels with the most votes."""
        labels, shares = self._votes(rows, n_jobs)
        best = np.empty((len(rows), min(n, labels.shape[1])), np.int64)
        _engine.select(labels, shares, best, np.empty(best.shape, np.float32))
        return best

    def score(self, rows: Rows, ids: Ints, n_jobs: int | None) -> Floats:
        """Return the scores of labels, an array like `ids`."""
        shares = np.empty(ids.shape, np.float32)
        _engine.look_up(ids, *self._votes(rows, n_jobs), 0.0, shares)
        scores: Floats = np.log(shares + _SMOOTHING)
        return scores

    def explain(self, rows: Rows, label: int) -> PartExplanation:
        """Return the rows that vote for a label, and what they share with the only row.

        Contributions are shares of the votes: they add up to q / Σ q.
        """
        features, values = rows.entries(0)
        nearest, cosines = (each[0] for each in self.nearest(rows, None))
        memory, found, total = self.memory, [], 0.0
        contributions = np.zeros(len(features))
        for row, cosine in zip(nearest.tolist(), cosines.tolist(), strict=True):
            if row < 0:
                continue
            labels = memory.labels[memory.label_ptr[row] : memory.label_ptr[row + 1]]
            scaled = np.cbrt(memory.weights[row]) * np.float32(cosine)
            vote = float(scaled * scaled * scaled)  # as the engine rounds it
            total += vote * len(labels)
            if label not in labels:
                continue
            own = slice(memory.ptr[row], memory.ptr[row + 1])
            vector = np.zeros(self.n_columns)
            vector[memory.features[own]] = memory.values[own].astype(np.float64)
            shared = values * vector[features]
            contributions += vote * shared / max(float(shared.sum()), 1e-30)
            largest = np.argsort(-shared, kind="stable")[:_SHARED]
            largest = largest[shared[largest] > 0]
            found.append({"row": row, "cosine": cosine, "shared": features[largest].tolist()})
        share = contributions / total if total > 0 else contributions
        score = float(np.log(share.sum() + _SMOOTHING))
        formula = "log(linear_score + 0.01), linear_score is the label's share of the votes"
        return PartExplanation(
            self.name, features, share, 0.0, score, formula, rows=found[:_EXPLAINED]
        )

    # Training

    @classmethod
    def fit(cls, given: Neighbours, context: Any) -> NeighbourPart:
        """Keep the training rows."""
        return cls._of(context.memory(context.n_rows), context, given.n_neighbors)

    def finish(self, context: Any) -> NeighbourPart:
        """Return the part with all rows, the held-out ones included."""
        memory = context.memory(context.n_rows, held_out=True)
        return self._of(memory, context, self.n_neighbors)

    @classmethod
    def _of(cls, memory: StoredRows, context: Any, n: int) -> NeighbourPart:
        return cls(memory, context.n_labels, context.n_columns, context.intercept, context.dense, n)

    def learn(self, context: Any) -> NeighbourPart:
        """Return the part with the memory after a further batch."""
        memory, n_labels = context.stored, context.n_labels
        return replace(self, memory=memory, n_labels=n_labels, n_columns=context.n_columns)

    def pruned(self, density: float) -> NeighbourPart:
        """Return the part with a fraction `density` of the rows."""
        return replace(self, memory=self.memory.shrink(max(int(density * len(self.memory)), 1)))

    # Files

    def state(self) -> tuple[dict[str, Any], Tensors]:
        """Return a JSON description; the rows are stored with the memory."""
        return {"n_neighbors": self.n_neighbors, **({"dense": True} if self.dense else {})}, {}

    @classmethod
    def from_state(cls, section: Described, sizes: Sizes, memory: Any = None) -> NeighbourPart:
        """Restore neighbours from their `state` and the memory."""
        if memory is None:
            raise ValueError("neighbours need rows in memory")
        n = section.integer("n_neighbors", 1, 1 << 16)
        dense = section.flag("dense", False)
        return cls(memory, sizes.n_labels, sizes.n_columns, sizes.intercept, dense, n)

    def describe(self) -> dict[str, Any]:
        """Return facts for ``ltls info``."""
        return {"neighbours": self.n_neighbors, "neighbour_rows": len(self.memory)}

    def __getstate__(self) -> dict[str, Any]:
        computed = ("engine", "vectors", "_most_voted")
        return {name: value for name, value in self.__dict__.items() if name not in computed}
