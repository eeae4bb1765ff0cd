"""Rows of features as the engine takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from ..core import _engine


@dataclass(frozen=True)
class SparseRows:
    """The arrays of a CSR matrix without scipy's checks, for single rows at low latency."""

    data: npt.NDArray[Any]
    indices: npt.NDArray[Any]
    indptr: npt.NDArray[Any]
    shape: tuple[int, int]

    def __getitem__(self, rows: npt.NDArray[np.int64]) -> csr_array:
        return csr_array((self.data, self.indices, self.indptr), shape=self.shape)[rows]


def engine_features(X: Any, intercept: bool, unit_length: bool) -> _engine.Features:
    """Pass a dense matrix, or a CSR matrix without duplicates, to the engine without a copy."""
    if not hasattr(X, "indptr"):
        return _engine.Features.dense(
            np.require(X, requirements=["C", "A"]), intercept, unit_length
        )
    index = X.indices.dtype if X.indices.dtype == X.indptr.dtype else np.int64
    data = np.require(X.data, requirements=["C", "A"])
    indices, indptr = (np.require(part, index, ["C", "A"]) for part in (X.indices, X.indptr))
    return _engine.Features.csr(data, indices, indptr, X.shape[1], intercept, unit_length)


def check_sparse(matrix: Any, name: str) -> None:
    """Raise an error if the arrays of a sparse matrix point outside of it.

    scipy trusts them: converting or sorting a malformed matrix reads and writes foreign memory.
    """
    if hasattr(matrix, "indptr"):
        kind = matrix.format.upper()
        major, minor = matrix.shape if matrix.format == "csr" else matrix.shape[::-1]
        indptr, indices = matrix.indptr, matrix.indices
        if matrix.format == "bsr":
            return  # scipy checks blocks itself
        n_values = min(len(indices), len(matrix.data))
        if len(indptr) != major + 1 or indptr[0] != 0 or indptr[-1] > n_values:
            raise ValueError(
                f"{name} is not a valid {kind} matrix: indptr must have {major + 1} entries from 0 "
                f"to at most {n_values}"
            )
        if (indptr[1:] < indptr[:-1]).any():  # a difference could overflow
            raise ValueError(f"{name} is not a valid {kind} matrix: indptr must not decrease")
        _check_range(name, kind, "index", indices[: indptr[-1]], minor)
    elif getattr(matrix, "format", "") == "coo":
        for axis, coordinates in enumerate((matrix.row, matrix.col)):
            _check_range(name, "COO", "coordinate", coordinates, matrix.shape[axis])


def _check_range(name: str, kind: str, what: str, values: npt.NDArray[Any], n: int) -> None:
    if len(values) and (values.min() < 0 or values.max() >= n):
        bad = values.min() if values.min() < 0 else values.max()
        raise ValueError(
            f"{name} is not a valid {kind} matrix: it has {what} {bad}, not one of 0 to {n - 1}"
        )
