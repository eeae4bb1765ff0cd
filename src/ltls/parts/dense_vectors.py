"""Dense int8 vectors, and their inner products with rows of dense features.

A row is compared with all vectors, without an index. It is rounded to integers, so that sums are
exact: results are the same for any number of threads and any instruction set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core import _engine
from ..core.arrays import AnyArray, Floats, Ints, threads
from ..core.caching import cached_property
from ..core.declarations import Array
from ..features.rows import Rows

_LANES = 16  # vectors that the engine reads side by side
_LARGEST, _LARGEST_TOTAL = 16000.0, 9e6  # of a value of a row as integers, and of their sum
_LARGEST_OFFSET = 4e8  # as an integer
_LARGEST_INT8 = np.float32(127)
_SMALLEST_SCALE = np.float16(2**-14)  # of those in full precision
_BLOCK = 4096  # vectors that are rounded at a time

TENSORS = {
    "values": Array("i1", ("n_values",), mapped=True),
    "scales": Array("f2", ("n_labels",), low=2**-14, high=1),
    "offsets": Array("f4", ("n_labels",), low=-1e30, high=1e30),
    "feature_scales": Array("f4", ("n_features",), low=1e-30, high=1e30),
}


@dataclass(frozen=True, eq=False)
class DenseVectors:
    """Vectors of int8, each with a scale and an offset.

    Parameters
    ----------
    values : int8 array
        The vectors in the engine's layout: pairs of features, of 16 vectors at a time.
    scales, offsets : float32 arrays of shape (n_vectors,)
        What the values of a vector are multiplied by, and what is added to its inner product.
    feature_scales : float32 array of shape (n_features,)
        What features are multiplied by.
    """

    values: AnyArray
    scales: Floats
    offsets: Floats
    feature_scales: Floats

    @classmethod
    def of(
        cls, vectors: AnyArray, scales: Floats, offsets: Floats, feature_scales: Floats
    ) -> DenseVectors:
        """Return vectors of an int8 array of shape (n_vectors, n_features)."""
        n, d = vectors.shape
        blocks, pairs = -(-n // _LANES), _n_pairs(d)
        padded = np.zeros((blocks * _LANES, 2 * pairs), np.int8)
        padded[:n, :d] = vectors
        values = padded.reshape(blocks, _LANES, pairs, 2).transpose(0, 2, 1, 3).ravel()
        return cls(values, scales, offsets, feature_scales)

    @classmethod
    def rounded(
        cls,
        vectors: Floats,
        offsets: Floats,
        means_of: Callable[[slice], Floats],
        feature_scales: Floats | None = None,
    ) -> DenseVectors:
        """Round vectors of shape (n_vectors, n_features) to int8.

        `means_of` returns a row for each of some vectors; offsets are adjusted so that the products
        of vectors with these rows do not change. Vectors that were rounded with the same
        `feature_scales` before are not changed by rounding again.
        """
        n, most = len(vectors), np.float32(0)
        if feature_scales is None:
            squares = sum(np.square(vectors[some]).sum(0, np.float64) for some in _blocks(n))
            scales = np.sqrt(squares / n)
            feature_scales = np.where(scales > 0, scales, 1).astype(np.float32)
        else:
            most = _LARGEST_INT8
        # A label without rows has a vector near 0, and an offset that must fit into an integer.
        largest = np.concatenate(
            [np.abs(vectors[some] / feature_scales).max(axis=1) for some in _blocks(n)]
        )
        usual, most = np.float32(0.25) * largest.mean(), max(largest.max(), most) or np.float32(1)
        # Scales are rounded to float16 first, so that rounding to int8 compensates for it.
        own_scales = (np.maximum(largest, usual) / most).astype(np.float16)
        own_scales = np.maximum(own_scales, _SMALLEST_SCALE).astype(np.float32)
        feature_scales = feature_scales * (most / _LARGEST_INT8)
        values, offsets = np.empty(vectors.shape, np.int8), offsets.copy()
        for some in _blocks(n):
            units = own_scales[some, None] * feature_scales
            values[some] = np.rint(vectors[some] / units)
            lost = vectors[some] - values[some] * units
            offsets[some] += (lost * means_of(some)).sum(axis=1)
        return cls.of(values, own_scales, offsets, feature_scales)

    @staticmethod
    def n_values(n_vectors: int, n_features: int) -> int:
        """Return the length of `values`."""
        return -(-n_vectors // _LANES) * _LANES * 2 * _n_pairs(n_features)

    def __len__(self) -> int:
        return len(self.scales)

    def matrix(self) -> Floats:
        """Return the vectors as float32, shape (n_vectors, n_features)."""
        found: Floats = self._unpacked(self.values, len(self)) * self.scales[:, None]
        return found * self.feature_scales

    def vector(self, number: int) -> Floats:
        """Return one vector as float32."""
        first = number - number % _LANES
        size = 2 * _n_pairs(len(self.feature_scales))
        block = self.values[first * size : (first + _LANES) * size]
        one = self._unpacked(block, _LANES)[number - first]
        found: Floats = one * self.scales[number] * self.feature_scales
        return found

    def _unpacked(self, values: AnyArray, n: int) -> AnyArray:
        d = len(self.feature_scales)
        blocks, pairs = -(-n // _LANES), _n_pairs(d)
        by_vector = values.reshape(blocks, pairs, _LANES, 2).transpose(0, 2, 1, 3)
        found: AnyArray = by_vector.reshape(blocks * _LANES, 2 * pairs)[:n, :d]
        return found

    # Inner products

    @cached_property
    def engine(self) -> _engine.DenseVectors:
        """The vectors as the engine takes them, validated once."""
        n_pairs = _n_pairs(len(self.feature_scales))
        return _engine.DenseVectors(self.values, self.scales, self.offsets, n_pairs)

    @cached_property
    def _smallest_unit(self) -> float:
        """The smallest unit that rows are rounded to, such that offsets fit into integers, too."""
        largest = float((np.abs(self.offsets) / self.scales).max(initial=0))
        return max(largest / _LARGEST_OFFSET, 1e-30)

    def _integers(self, rows: Rows) -> tuple[AnyArray, Floats]:
        """Return rows as integers and their scales, computed once for the same rows."""
        if self not in rows.memo:
            scaled = rows.dense() * self.feature_scales
            size = np.abs(scaled)
            largest, total = size.max(axis=1, initial=0), size.sum(axis=1)
            units = np.maximum(largest / _LARGEST, total / _LARGEST_TOTAL)
            units = np.maximum(units, self._smallest_unit).astype(np.float32)
            padded = np.zeros((len(rows), 2 * _n_pairs(scaled.shape[1])), np.int16)
            np.rint(scaled / units[:, None], out=scaled)
            padded[:, : scaled.shape[1]] = scaled
            rows.memo[self] = padded, units
        return rows.memo[self]  # type: ignore[no-any-return]

    def highest(self, rows: Rows, n: int, n_jobs: int | None) -> tuple[Ints, Floats]:
        """Return the n vectors with the highest products with every row, and the products."""
        ids = np.empty((len(rows), min(n, len(self))), np.int64)
        products = np.empty(ids.shape, np.float32)
        self.engine.highest(*self._integers(rows), ids, products, threads(n_jobs))
        return ids, products

    def products(self, rows: Rows, ids: Ints, n_jobs: int | None) -> Floats:
        """Return the products of rows with some vectors each, an array like `ids`."""
        found = np.empty(ids.shape, np.float32)
        integers, units = self._integers(rows)
        if ids.shape[1] == len(self) and (ids == np.arange(len(self))).all():
            self.engine.all_scores(integers, units, found, threads(n_jobs))
        else:
            self.engine.scores(integers, units, ids, found, threads(n_jobs))
        return found

    def __getstate__(self) -> dict[str, Any]:
        computed = ("engine", "_smallest_unit")
        return {name: value for name, value in self.__dict__.items() if name not in computed}


def _blocks(n: int) -> list[slice]:
    return [slice(first, first + _BLOCK) for first in range(0, n, _BLOCK)]


def _n_pairs(n_features: int) -> int:
    return -(-n_features // 2)
