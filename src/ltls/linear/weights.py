"""Weights to predict with: features in, edge scores out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core import _engine
from ..core.arrays import threads

PADDING = 16  # a trellis' block of a row of W is padded to this many numbers: 64 bytes of float32
DTYPES = ("float32", "float16", "int8")


def padded(n_edges: int) -> int:
    """Return the length of a trellis' block in a row of W."""
    return -(-n_edges // PADDING) * PADDING


def aligned_zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return zeros that start on a cache line, so that every block does."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 64, np.uint8)
    first = -memory.ctypes.data % 64
    return memory[first : first + size].view(dtype).reshape(shape)


def aligned(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a copy that starts on a cache line."""
    copy = aligned_zeros(array.shape, array.dtype)
    copy[:] = array
    return copy


@dataclass(frozen=True)
class Weights:
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

    values: npt.NDArray[Any]
    scales: npt.NDArray[np.float32] | None
    n_edges: int
    n_trellises: int
    intercept: bool
    unit_length: bool

    @property
    def n_features(self) -> int:
        """The number of features."""
        return len(self.values) - self.intercept

    @property
    def engine_values(self) -> npt.NDArray[Any]:
        """The values as the engine takes them: float16 as uint16."""
        return self.values.view(np.uint16) if self.values.dtype == np.float16 else self.values

    def edge_scores(
        self, features: _engine.Features, first: int, count: int, n_jobs: int | None
    ) -> npt.NDArray[np.float32]:
        """Return h = xW for `count` rows from `first` on, padded as W is."""
        h = np.empty((count, self.values.shape[1]), np.float32)
        features.edge_scores(self.engine_values, self.scales, h, first, threads(n_jobs))
        return h

    def without_padding(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return rows of W or h without the padding, shape (n_rows, n_trellises · n_edges)."""
        blocks = rows.reshape(len(rows), self.n_trellises, -1)
        return blocks[:, :, : self.n_edges].reshape(len(rows), -1)

    def copy(self) -> Weights:
        """Return weights that do not change when training goes on."""
        return replace(self, values=aligned(self.values))

    def dense(self) -> npt.NDArray[np.float32]:
        """Return W as float32 without padding, shape (n_rows, n_trellises · n_edges)."""
        return self.without_padding(self._as_float32())

    def astype(self, dtype: str) -> Weights:
        """Return the weights rounded to float32, float16 or int8."""
        if dtype not in DTYPES:
            raise ValueError(f"dtype must be 'float32', 'float16' or 'int8', got {dtype!r}")
        values = self._as_float32()
        largest = np.abs(values).max(axis=1, initial=0)
        if dtype == "int8":
            scales = np.where(largest > 0, largest / 127, 1).astype(np.float32)
            rows = np.rint(values / scales[:, None]).astype(np.int8)
            return replace(self, values=aligned(rows), scales=scales)
        if dtype == "float16" and largest.max(initial=0) > np.finfo(np.float16).max:
            raise ValueError("weights are too large for float16; use dtype='float32' or 'int8'")
        return replace(self, values=values.astype(dtype), scales=None)

    def _as_float32(self) -> npt.NDArray[np.float32]:
        values: npt.NDArray[np.float32] = self.values.astype(np.float32)
        return values if self.scales is None else values * self.scales[:, None]
