"""Weights to predict with: features in, edge scores out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..core import _engine
from ..core.arrays import (
    MOST_SCALE,
    AnyArray,
    Floats,
    Ints,
    Tensors,
    aligned_zeros,
    as_int8,
    entries_of,
    int8_scales,
    pointers,
    smallest,
    threads,
)
from ..core.caching import cached_property
from ..core.declarations import Array, Described
from .base import Sizes

PADDING = 16  # a trellis' block of a row of W is padded to this many numbers: 64 bytes of float32
DTYPES = ("float32", "float16", "int8")
MAX_PRUNED_STRIDE = 1 << 16  # places of kept weights in their row are 16-bit integers


def padded(n_edges: int) -> int:
    """Return the length of a trellis' block in a row of W."""
    return -(-n_edges // PADDING) * PADDING


def aligned(array: AnyArray) -> AnyArray:
    """Return a copy that starts on a cache line."""
    copy = aligned_zeros(array.shape, array.dtype)
    copy[:] = array
    return copy


class _Weights:
    """What all weights share: blocks of edges for every trellis, and scoring by the engine."""

    values: AnyArray
    n_edges: int
    n_trellises: int
    intercept: bool
    unit_length: bool

    @property
    def stride(self) -> int:
        """The length of a row, with the padding of every block."""
        return self.n_trellises * padded(self.n_edges)

    @cached_property
    def engine(self) -> _engine.Weights:
        """The weights as the engine takes them, validated once."""
        raise NotImplementedError

    @property
    def n_features(self) -> int:
        """The number of features."""
        return self.engine.n_rows - self.intercept

    def edge_scores(
        self, features: _engine.Features, first: int, count: int, n_jobs: int | None
    ) -> Floats:
        """Return h = xW for `count` rows from `first` on, padded as W is."""
        h = np.empty((count, self.stride), np.float32)
        features.edge_scores(self.engine, h, first, threads(n_jobs))
        return h

    def without_padding(self, rows: AnyArray) -> AnyArray:
        """Return rows of W or h without the padding, shape (n_rows, n_trellises · n_edges)."""
        blocks = rows.reshape(len(rows), self.n_trellises, -1)
        return blocks[:, :, : self.n_edges].reshape(len(rows), -1)

    def dense(self) -> Floats:
        """Return W as float32 without padding, shape (n_rows, n_trellises · n_edges)."""
        W = self.without_padding(self.to_float32())
        return W.copy() if np.may_share_memory(W, self.values) else W

    def to_float32(self) -> Floats:
        """Return W as float32, padded."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "engine"}


@dataclass(frozen=True)
class Weights(_Weights):
    """The matrix W of a linear model: one row per feature, plus one for the intercept if any.

    Parameters
    ----------
    values : array of shape (n_rows, n_trellises · padded(n_edges))
        float32, float16, or int8 with one scale per row; may be memory-mapped.
    scales : array of shape (n_rows,), or None
        What the rows of int8 values are multiplied by.
    n_edges, n_trellises : int
        A row holds a padded block of edges for every trellis.
    intercept : bool
        Whether the last row is the intercept.
    unit_length : bool
        Whether rows of X are scaled to unit length before they are scored.
    """

    values: AnyArray
    scales: Floats | None
    n_edges: int
    n_trellises: int
    intercept: bool
    unit_length: bool

    @cached_property
    def engine(self) -> _engine.Weights:
        """The weights as the engine takes them: float16 as uint16."""
        half = self.values.dtype == np.float16
        return _engine.Weights.dense(
            self.values.view(np.uint16) if half else self.values, self.scales
        )

    @property
    def density(self) -> float:
        """The fraction of the weights that are kept: all."""
        return 1.0

    def copy(self) -> Weights:
        """Return weights that do not change during further training."""
        return replace(self, values=aligned(self.values))

    def to_float32(self) -> Floats:
        """Return W as float32, padded; not a copy if it is that already."""
        values: Floats = self.values.astype(np.float32, copy=False)
        return values if self.scales is None else values * self.scales[:, None]

    def rows(self, features: Ints) -> Floats:
        """Return some rows of W as float32, padded."""
        scales = None if self.scales is None else self.scales[features]
        return replace(self, values=self.values[features], scales=scales).to_float32()

    def astype(self, dtype: str) -> Weights:
        """Return the weights rounded to float32, float16 or int8."""
        if dtype not in DTYPES:
            raise ValueError(f"dtype must be 'float32', 'float16' or 'int8', got {dtype!r}")
        values = self.to_float32()
        largest = np.abs(values).max(axis=1, initial=0)
        if dtype == "int8":
            scales = int8_scales(largest)
            rows = np.rint(values / scales[:, None]).astype(np.int8)
            return replace(self, values=aligned(rows), scales=scales)
        if dtype == "float16" and largest.max(initial=0) > np.finfo(np.float16).max:
            raise ValueError("weights are too large for float16; use dtype='float32' or 'int8'")
        return replace(self, values=values.astype(dtype), scales=None)

    def prune(self, threshold: float) -> PrunedWeights:
        """Return the weights whose magnitude reaches a threshold, as int8."""
        if self.stride > MAX_PRUNED_STRIDE:
            raise ValueError(
                f"trellises with {self.stride:,} weights per feature cannot be pruned (the limit "
                f"is {MAX_PRUNED_STRIDE:,}): use density=1 and no size_budget, or a smaller width"
            )
        ends, columns, values, scales = [0], [], [], []
        for first in range(0, len(self.values), _ROWS_PER_BLOCK):
            some = slice(first, first + _ROWS_PER_BLOCK)
            part = replace(self, values=self.values[some], scales=_part(self.scales, some))
            block = part.to_float32()
            row, column = np.nonzero(np.abs(block) >= threshold)
            rounded, own = as_int8(block[row, column], row, len(block))
            values.append(rounded)
            scales.append(own)
            columns.append(column.astype(np.uint16))
            ends.extend((ends[-1] + np.cumsum(np.bincount(row, minlength=len(block)))).tolist())
        return PrunedWeights(
            np.array(ends, np.int64),
            np.concatenate(columns),
            np.concatenate(values),
            np.concatenate(scales),
            self.n_edges,
            self.n_trellises,
            self.intercept,
            self.unit_length,
        )

    def pruned(self, density: float) -> PrunedWeights:
        """Return the largest of the weights, about a fraction `density` of them, as int8."""
        every = max(1, self.values.size // _SAMPLED_WEIGHTS)
        sample = replace(
            self, values=self.values[::every], scales=_part(self.scales, slice(None, None, every))
        )
        sizes = np.abs(sample.dense())
        # A single path has no edges, and so no weights.
        magnitude = float(np.quantile(sizes, 1 - density)) if sizes.size else 0.0
        return self.prune(max(magnitude, float(np.finfo(np.float32).tiny)))  # zeros are dropped


@dataclass(frozen=True)
class PrunedWeights(_Weights):
    """W with small weights dropped: only those that are kept, as int8 with one scale per row.

    Parameters
    ----------
    row_ptr : int64 array of shape (n_rows + 1,)
        Row i has entries row_ptr[i] … row_ptr[i + 1] − 1 of `columns` and `values`.
    columns : uint16 array
        The place of every kept weight in its row, which is padded as in `Weights`.
    values : int8 array
    scales : float32 array of shape (n_rows,)
        What the values of a row are multiplied by.
    n_edges, n_trellises, intercept, unit_length
        As in `Weights`.
    """

    row_ptr: Ints
    columns: npt.NDArray[np.uint16]
    values: npt.NDArray[np.int8]
    scales: Floats
    n_edges: int
    n_trellises: int
    intercept: bool
    unit_length: bool

    @cached_property
    def engine(self) -> _engine.Weights:
        """The weights as the engine takes them; dense, which is faster, if memory allows."""
        pruned = _engine.Weights.pruned(
            self.row_ptr, self.columns, self.values, self.scales, self.stride
        )
        if pruned.n_rows * self.stride > min(_MAX_EXPANDED, _FEW_EXPANDED + 12 * len(self.values)):
            return pruned
        return _engine.Weights.dense(self._expanded(np.int8), self.scales)

    @property
    def density(self) -> float:
        """The fraction of the weights that are kept."""
        return len(self.values) / max(len(self.scales) * self.n_trellises * self.n_edges, 1)

    def to_float32(self) -> Floats:
        """Return W as float32, padded, with zeros for the weights that were dropped."""
        W = self._expanded(np.float32)
        W *= self.scales[:, None]
        return W

    def rows(self, features: Ints) -> Floats:
        """Return some rows of W as float32, padded, with zeros for dropped weights."""
        ptr, at = entries_of(self.row_ptr, features)
        row = np.repeat(np.arange(len(features)), np.diff(ptr))
        W = np.zeros((len(features), self.stride), np.float32)
        W[row, self.columns[at]] = self.values[at] * self.scales[features][row]
        return W

    def _expanded(self, dtype: type[Any]) -> AnyArray:
        """Return the values as a padded matrix, with zeros for the weights that were dropped."""
        W = aligned_zeros((len(self.scales), self.stride), dtype)
        for first in range(0, len(W), _ROWS_PER_BLOCK):
            ends = self.row_ptr[first : first + _ROWS_PER_BLOCK + 1]
            row = np.repeat(np.arange(first, first + len(ends) - 1), np.diff(ends))
            some = slice(ends[0], ends[-1])
            W[row, self.columns[some]] = self.values[some]
        return W

    def to_dense(self) -> Weights:
        """Return all weights as float32, zeros for those that were dropped."""
        shape = (self.n_edges, self.n_trellises, self.intercept, self.unit_length)
        return Weights(self.to_float32(), None, *shape)


AnyWeights: TypeAlias = Weights | PrunedWeights

_ROWS_PER_BLOCK = 4096
_SAMPLED_WEIGHTS = 1 << 20
# Size up to which pruned int8 weights are made dense to predict faster. Above the second one, at
# most four times the memory of the pruned weights is taken.
_MAX_EXPANDED, _FEW_EXPANDED = 1 << 27, 1 << 24


def _part(scales: Floats | None, some: slice) -> Floats | None:
    return None if scales is None else scales[some]


# Files

_DENSE: dict[str, Array] = {
    "values": Array("f4|f2|i1", ("n_columns", "stride"), mapped=True),
    "scales": Array("f4", ("n_columns",), low=0, high=MOST_SCALE, group="scales"),
}
_PRUNED: dict[str, Array] = {
    "counts": Array("uint", ("n_columns",), total="n_kept"),
    "columns": Array("uint", ("n_kept",), high="stride - 1", increasing="counts"),
    "values": Array("i1", ("n_kept",)),
}
_SCALES = {"scales": Array("f4", ("n_scales",), low=0, high=MOST_SCALE)}  # of rows with weights


def weights_state(weights: AnyWeights) -> tuple[dict[str, Any], Tensors]:
    """Return a JSON description and tensors of weights."""
    if isinstance(weights, PrunedWeights):
        counts = np.diff(weights.row_ptr)
        return {"pruned": True}, {
            "counts": smallest(counts),
            "columns": smallest(weights.columns),
            "values": weights.values,
            "scales": weights.scales[counts > 0],
        }
    tensors: Tensors = {"values": weights.values}
    return {"pruned": False}, tensors | (
        {} if weights.scales is None else {"scales": weights.scales}
    )


def weights_from_state(
    section: Described, n_edges: int, n_trellises: int, given: Sizes
) -> AnyWeights:
    """Restore weights from their state."""
    n_columns = given.n_columns
    sizes = {"n_columns": n_columns, "stride": n_trellises * padded(n_edges)}
    shape = n_edges, n_trellises, given.intercept, given.unit_length
    if section.flag("pruned"):
        tensors = section.tensors(_PRUNED, sizes)
        columns = tensors["columns"].astype(np.uint16, copy=False)
        kept = tensors["counts"] > 0
        own_scales = np.ones(n_columns, np.float32)
        own_scales[kept] = section.tensors(_SCALES, {"n_scales": int(kept.sum())})["scales"]
        return PrunedWeights(
            pointers(tensors["counts"]), columns, tensors["values"], own_scales, *shape
        )
    tensors = section.tensors(_DENSE, sizes)
    scales = np.array(tensors["scales"]) if "scales" in tensors else None
    if (tensors["values"].dtype == np.int8) != (scales is not None):
        raise ValueError("weights must have scales if, and only if, they are int8")
    return Weights(tensors["values"], scales, *shape)
