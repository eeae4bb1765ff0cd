"""The rows of a request: texts, rows of a table, or features as a CSR matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from .errors import RequestError, quoted
from .models import ServedModel

_LARGEST_VALUE = 1e15  # of a feature, as for the estimators


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a request.

    Parameters
    ----------
    inputs : list of str, list of dict, or None
        Texts, or rows of a table.
    arrays : (indptr, indices, values), or None
        The arrays of a CSR matrix, for a model of features.
    n_features : int
    """

    inputs: list[Any] | None
    arrays: tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]] | None
    n_features: int

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.inputs or ()) if self.arrays is None else len(self.arrays[0]) - 1

    @property
    def X(self) -> Any:  # noqa: N802
        """The rows as an estimator takes them."""
        return self.inputs if self.arrays is None else self._matrix

    @cached_property
    def _matrix(self) -> csr_array:
        """The rows as a matrix; duplicate features are summed."""
        assert self.arrays is not None
        indptr, indices, values = self.arrays
        X = csr_array((values, indices, indptr), shape=(self.n_rows, self.n_features))
        X.sum_duplicates()
        return X


def text_rows(model: ServedModel, texts: Sequence[str], max_rows: int) -> Rows:
    """Return texts as rows of a model."""
    if not model.takes_text:
        taken = "features" if model.columns is None else "rows of a table"
        raise RequestError(422, f"model {quoted(model.name)} takes {taken}, not text: send rows")
    _check_count(len(texts), max_rows)
    return Rows(list(texts), None, model.n_features)


def table_rows(model: ServedModel, rows: Sequence[dict[str, Any]], max_rows: int) -> Rows:
    """Return rows of a table as rows of a model."""
    assert model.columns is not None
    _check_count(len(rows), max_rows)
    cells = []
    for number, row in enumerate(rows):
        for name in row:
            if name not in model.columns.names:
                raise RequestError(422, f"model {quoted(model.name)} has no column {quoted(name)}")
        try:
            cells.append(model.columns.read(row))
        except ValueError as error:
            raise RequestError(422, f"row {number}: {error}"[:300]) from None
    return Rows(cells, None, model.n_features)


def dense_rows(model: ServedModel, values: npt.NDArray[Any], max_rows: int) -> Rows:
    """Return an array of shape (n_rows, n_features) as rows of a model."""
    _check_features_wanted(model)
    _check_count(len(values), max_rows)
    if values.ndim != 2 or values.shape[1] != model.n_features:
        raise RequestError(
            422,
            f"a row of model {quoted(model.name)} must have {model.n_features} numbers, "
            f"got an array of shape {values.shape}",
        )
    _check_values(values)
    X = csr_array(values)
    return Rows(None, (X.indptr, X.indices, X.data), model.n_features)


def sparse_rows(
    model: ServedModel,
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int64],
    values: npt.NDArray[Any],
    max_rows: int,
) -> Rows:
    """Return the arrays of a CSR matrix as rows of a model."""
    _check_features_wanted(model)
    _check_count(len(indptr) - 1, max_rows)
    if len(indices) != len(values):
        raise RequestError(
            422, f"indices and values must have equal lengths, got {len(indices)} and {len(values)}"
        )
    if indptr[-1] != len(indices):
        raise RequestError(
            422, f"indptr must end with the number of values, {len(indices)}, got {indptr[-1]}"
        )
    _check_values(values)
    if indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
        raise RequestError(422, "indptr must begin with 0 and must not decrease")
    if len(indices) and not (indices.min() >= 0 and indices.max() < model.n_features):
        wrong = indices[(indices < 0) | (indices >= model.n_features)][0]
        raise RequestError(422, f"indices must be from 0 to {model.n_features - 1}, got {wrong}")
    return Rows(None, (indptr, indices, values), model.n_features)


def named_rows(model: ServedModel, rows: Sequence[dict[str, Any]], max_rows: int) -> Rows:
    """Return rows that name their features as rows of a model; the others are 0."""
    if model.columns is not None:
        return table_rows(model, rows, max_rows)
    _check_features_wanted(model)
    places = model.places
    if not places:
        raise RequestError(
            422,
            f"the features of model {quoted(model.name)} have no names: send a list of "
            f"{model.n_features} numbers, or indices and values",
        )
    for row in rows:
        for name in row:
            if name not in places:
                raise RequestError(422, f"model {quoted(model.name)} has no feature {quoted(name)}")
            if not isinstance(row[name], (int, float)):
                raise RequestError(422, f"feature {quoted(name)} must be a number")
    indptr = np.cumsum([0, *map(len, rows)])
    indices = np.array([places[name] for row in rows for name in row], np.int64)
    values = np.array([value for row in rows for value in row.values()], np.float64)
    return sparse_rows(model, indptr, indices, values, max_rows)


def _check_features_wanted(model: ServedModel) -> None:
    if model.takes_text:
        raise RequestError(422, f"model {quoted(model.name)} takes text, not features: send text")
    if model.columns is not None:
        names = ", ".join(model.columns.names)
        raise RequestError(
            422, f"a row of model {quoted(model.name)} must be an object with {names}"[:300]
        )


def _check_count(n_rows: int, max_rows: int) -> None:
    if n_rows < 1:
        raise RequestError(422, "a request must have at least one row, got none")
    if n_rows > max_rows:
        raise RequestError(
            413, f"a request may have at most {max_rows} rows, got {n_rows}: send several requests"
        )


def _check_values(values: npt.NDArray[Any]) -> None:
    if values.size and not np.abs(values).max() <= _LARGEST_VALUE:  # NaN too
        raise RequestError(422, f"values must be numbers of at most {_LARGEST_VALUE:g}")
