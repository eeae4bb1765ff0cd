"""Neighbours: labels of the training rows that resemble a row most.

A label gets q votes, the sum of weight · cos³ over the nearest rows that have it; its score is
log(q / Σ q + 0.01). Nothing is trained, so a label is found from its first row on. Sparse rows are
those of the model's memory, and found by an index of their features. Dense ones are all compared:
beside a label matrix, by the few coordinates in which labels differ most, which are all that is
stored of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ..core import _engine
from ..core.arrays import AnyArray, Doubles, Floats, Ints, Tensors, threads
from ..core.caching import cached_property
from ..core.declarations import Array, Described
from ..core.settings import Integer, Settings, setting, settings
from ..features.rows import Rows
from .base import PartExplanation, Sizes, register_part
from .dense_vectors import DenseVectors
from .discriminant import Statistics, one_thread
from .label_matrix import MOST_FEATURES
from .memory import StoredRows

_SMOOTHING = np.float32(0.01)
_LABELS = 512  # of the nearest rows, that count at most
_EXPLAINED, _SHARED = 5, 10  # rows, and features that each shares
_COORDINATES = 32  # of a dense row
_ROWS_AT_ONCE = 1024
_LARGEST = np.float32(2**13)  # of the features of a row as integers


@settings
class Neighbours(Settings):
    """How many stored rows vote for labels."""

    n_neighbors: int = setting(
        Integer(1, 1 << 16), default=30, help="Number of nearest stored rows that vote for labels."
    )


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Coordinates of dense rows.

    Parameters
    ----------
    mean : float32 array of shape (n_inputs,)
        What is subtracted from rows.
    axes : float16 array of shape (n_inputs, n_axes)
    """

    mean: Floats
    axes: AnyArray

    TENSORS: ClassVar[dict[str, Array]] = {
        "mean": Array("f4", ("n_inputs",), low=-1e30, high=1e30),
        "axes": Array("f2", ("n_inputs", "n_axes"), low=-1, high=1),
    }

    @classmethod
    def of(cls, context: Any) -> Coordinates | None:
        """Return the coordinates in which labels differ most.

        None if rows have few features, or if there are few labels: more may follow, which differ in
        other directions.
        """
        few = min(context.n_labels - 1, context.n_vector_features - 1) < _COORDINATES
        if few or not context.plan.of_vectors:
            return None
        with one_thread():
            stats = Statistics.of(context)
            axes = stats.directions(_COORDINATES)
        return cls(stats.mean, (axes / max(np.abs(axes).max(), 1e-300)).astype(np.float16))

    def __call__(self, rows: Rows) -> Rows:
        """Return rows in these coordinates, each multiplied by a number of its own."""
        axes = self.axes.astype(np.float64)
        firsts = range(0, max(len(rows), 1), _ROWS_AT_ONCE)
        blocks = (rows[first : first + _ROWS_AT_ONCE].dense() for first in firsts)
        found = [(self._integers(X) @ axes).astype(np.float32) for X in blocks]
        return Rows(np.concatenate(found), False, False)

    def _integers(self, X: Floats) -> Doubles:
        """Return centered rows as integers of 14 bits, each divided by a unit of its own.

        Products with axes, which are multiples of 2⁻²⁴ and at most 1, and their sums over up to 2¹⁴
        features are exact in float64: they do not depend on the order, on other rows or on threads.
        """
        centered = X - self.mean
        units = np.abs(centered).max(axis=1, keepdims=True) / _LARGEST
        found: Doubles = np.rint(centered / np.maximum(units, np.float32(1e-30)), dtype=np.float64)
        return found

    def to_original(self, vector: Doubles) -> tuple[Doubles, float]:
        """Return w and c such that X @ w + c are the products of coordinates with `vector`."""
        own = self.axes.astype(np.float64) @ vector
        return own, -float(own @ self.mean)


@register_part
@dataclass(frozen=True, eq=False)
class NeighbourPart:
    """Stored rows, and how many of them vote.

    Parameters
    ----------
    stored : StoredRows
        Those of the model's memory, unless there are coordinates.
    n_labels, n_columns, intercept, dense
        The number of labels, and what the rows to predict are like.
    n_neighbors : int
    coordinates : Coordinates, optional
        In which dense rows are stored and compared.
    """

    name: ClassVar[str] = "neighbours"
    settings: ClassVar[type[Settings]] = Neighbours
    grid: ClassVar[tuple[float, ...]] = (0.25, 0.5, 1.0, 2.0, 4.0)
    needs_memory: ClassVar[bool] = True

    stored: StoredRows
    n_labels: int
    n_columns: int
    intercept: bool
    dense: bool
    n_neighbors: int
    coordinates: Coordinates | None = None

    @property
    def memory(self) -> StoredRows | None:
        """The rows of the model's memory that are needed."""
        return self.stored if self.coordinates is None else None

    @property
    def n_bytes(self) -> int:
        """The size of rows and axes that only this part needs."""
        if self.coordinates is None:
            return 0
        tensors = self.state()[1]
        return sum(tensor.nbytes for tensor in tensors.values())

    @cached_property
    def engine(self) -> _engine.LabelledRows:
        """The labels of the rows, and an index of sparse rows."""
        memory, some = self.stored, slice(0, 0 if self.dense else None)
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
        if self.coordinates is not None:
            n_inputs = self.coordinates.axes.shape[1]
        integers = self.stored.vectors(n_inputs)
        lengths = np.sqrt(np.einsum("ij,ij->i", integers, integers, dtype=np.float32))
        scales = 1 / np.maximum(lengths, 1)
        ones, none = np.ones(n_inputs, np.float32), np.zeros(len(scales), np.float32)
        return DenseVectors.of(integers, scales, none, ones)

    def nearest(self, rows: Rows, n_jobs: int | None) -> tuple[Ints, Floats]:
        """Return the nearest rows of every row and their cosines, best first; −1 and 0 for none."""
        if self.dense and len(self.stored):
            rows = rows if self.coordinates is None else self.coordinates(rows)
            found, cosines = self.vectors.highest(rows, self.n_neighbors, n_jobs)
            cosines /= rows.lengths[:, None]
            found[cosines <= 0] = -1
            return found, np.maximum(cosines, 0, out=cosines)
        found = np.empty((len(rows), min(self.n_neighbors, max(len(self.stored), 1))), np.int64)
        cosines = np.empty(found.shape, np.float32)
        self.engine.nearest(rows.engine, 0, found, cosines, threads(n_jobs))
        return found, cosines

    @cached_property
    def _most_voted(self) -> int:
        """The number of labels that the nearest rows of a row have at most."""
        per_row = int(np.diff(self.stored.label_ptr).max(initial=1))
        return min(self.n_neighbors * max(per_row, 1), _LABELS, self.n_labels)

    def _votes(self, rows: Rows, n_jobs: int | None) -> tuple[Ints, Floats]:
        """Return labels and their shares of the votes, once for the same rows."""
        if self not in rows.memo:
            labels = np.empty((len(rows), self._most_voted), np.int64)
            shares = np.empty(labels.shape, np.float32)
            nearest, cosines = self.nearest(rows, n_jobs)
            if len(self.stored):  # the engine takes cubes
                cosines *= np.cbrt(self.stored.weights)[nearest]
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
        memory, found, total, intercept = self.stored, [], 0.0, 0.0
        contributions = np.zeros(len(features))
        size = self.n_columns if self.coordinates is None else self.coordinates.axes.shape[1]
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
            vector, constant = np.zeros(size), 0.0
            vector[memory.features[own]] = memory.values[own].astype(np.float64)
            if self.coordinates is not None:
                vector, constant = self.coordinates.to_original(vector)
            shared = values * vector[features]
            product = float(shared.sum()) + constant
            if product <= 0:  # the cosine is positive only because it is rounded
                intercept += vote
                continue
            contributions += vote * shared / product
            intercept += vote * constant / product
            largest = np.argsort(-shared, kind="stable")[:_SHARED]
            largest = largest[shared[largest] > 0]
            shares = features[largest].tolist()
            found.append(
                {"row": row, "labels": labels.tolist(), "cosine": cosine, "shared": shares}
            )
        share, intercept = contributions / (total or 1.0), intercept / (total or 1.0)
        score = float(np.log(share.sum() + intercept + _SMOOTHING))
        formula = "log(linear_score + 0.01), linear_score is the label's share of the votes"
        return PartExplanation(
            self.name, features, share, intercept, score, formula, rows=found[:_EXPLAINED]
        )

    # Training

    @classmethod
    def fit(cls, given: Neighbours, context: Any) -> NeighbourPart:
        """Keep the training rows."""
        coordinates = Coordinates.of(context) if context.dense else None
        stored = context.memory(context.n_rows, coordinates=coordinates)
        sizes = context.n_labels, context.n_columns, context.intercept, context.dense
        return cls(stored, *sizes, given.n_neighbors, coordinates)

    def finish(self, context: Any) -> NeighbourPart:
        """Return the part with all rows, the held-out ones included."""
        memory = context.memory(context.n_rows, held_out=True, coordinates=self.coordinates)
        return self._with(memory, context)

    def learn(self, context: Any) -> NeighbourPart:
        """Return the part with the rows of a further batch."""
        if self.coordinates is None:
            return self._with(context.stored, context)
        return self._with(context.with_batch(self.stored, self.coordinates), context)

    def _with(self, stored: StoredRows, context: Any) -> NeighbourPart:
        sizes = {"n_labels": context.n_labels, "n_columns": context.n_columns}
        return replace(self, stored=stored, **sizes)

    def pruned(self, density: float) -> NeighbourPart:
        """Return the part with a fraction `density` of the rows."""
        return replace(self, stored=self.stored.shrink(max(int(density * len(self.stored)), 1)))

    # Files

    def state(self) -> tuple[dict[str, Any], Tensors]:
        """Return a JSON description and tensors; rows of the memory are stored with it."""
        described: dict[str, Any] = {"n_neighbors": self.n_neighbors}
        if self.coordinates is None:
            return {**described, **({"dense": True} if self.dense else {})}, {}
        mean, axes = self.coordinates.mean, self.coordinates.axes
        several = bool((np.diff(self.stored.label_ptr) != 1).any())
        rows, tensors = self.stored.state(several, axes.shape[1])
        own = {
            "mean": mean,
            "axes": axes,
            **{f"rows.{name}": each for name, each in tensors.items()},
        }
        return {**described, "rows": rows, "n_axes": axes.shape[1], "several": several}, own

    @classmethod
    def from_state(cls, section: Described, sizes: Sizes, memory: Any = None) -> NeighbourPart:
        """Restore neighbours from their `state` and the memory."""
        n = section.integer("n_neighbors", 1, 1 << 16)
        coordinates = None
        if section.has("n_axes"):
            n_axes, several = section.integer("n_axes", 1, _COORDINATES), section.flag("several")
            known = {"n_inputs": sizes.n_columns - sizes.intercept, "n_axes": n_axes}
            if known["n_inputs"] > MOST_FEATURES:
                raise ValueError(f"neighbours have coordinates of at most {MOST_FEATURES} features")
            tensors = section.tensors(Coordinates.TENSORS, known)
            coordinates = Coordinates(np.array(tensors["mean"]), tensors["axes"])
            own = replace(sizes, n_columns=n_axes, intercept=False, n_beside=0, multilabel=several)
            memory = StoredRows.from_state(section.section("rows"), own)
        if memory is None:
            raise ValueError("neighbours need rows in memory")
        dense = coordinates is not None or section.flag("dense", False)
        if dense and sizes.sparse:
            raise ValueError("neighbours must not be dense in a model of sparse rows")
        shape = sizes.n_labels, sizes.n_columns, sizes.intercept, dense
        return cls(memory, *shape, n, coordinates)

    def describe(self) -> dict[str, Any]:
        """Return facts for ``ltls info``."""
        return {"neighbours": self.n_neighbors, "neighbour_rows": len(self.stored)}

    def __getstate__(self) -> dict[str, Any]:
        computed = ("engine", "vectors", "_most_voted")
        return {name: value for name, value in self.__dict__.items() if name not in computed}
