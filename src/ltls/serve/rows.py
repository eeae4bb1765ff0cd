"""The rows of a request: texts, or features as a CSR matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from ..features.rows import check_sparse
from .errors import RequestError, quoted
from .models import ServedModel

_LARGEST_VALUE = 1e15  # of a feature, as for the estimators


@dataclass(frozen=True)
class Rows:
    """Rows as an estimator takes them.

    Parameters
    ----------
    X : list of str, or csr_array
    n_rows : int
    """

    X: Any
    n_rows: int


def text_rows(model: ServedModel, texts: Sequence[str], max_rows: int) -> Rows:
    """Return texts as rows of a model."""
    if not model.takes_text:
        raise RequestError(422, f"model {quoted(model.name)} takes features, not text: send rows")
    _check_count(len(texts), max_rows)
    return Rows(list(texts), len(texts))


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
    return Rows(csr_array(values), len(values))


def sparse_rows(
    model: ServedModel,
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int64],
    values: npt.NDArray[Any],
    max_rows: int,
) -> Rows:
    """Return the arrays of a CSR matrix as rows of a model; duplicate features are summed."""
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
    X = csr_array((len(indptr) - 1, model.n_features), dtype=values.dtype)
    X.data, X.indices, X.indptr = values, indices, indptr  # scipy's own checks come too late
    try:
        check_sparse(X, "rows")
    except ValueError as error:
        raise RequestError(422, str(error)) from None
    X.sum_duplicates()
    return Rows(X, X.shape[0])


def named_rows(model: ServedModel, rows: Sequence[dict[str, float]], max_rows: int) -> Rows:
    """Return rows that name their features as rows of a model; the others are 0."""
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
    indptr = np.cumsum([0, *map(len, rows)])
    indices = np.array([places[name] for row in rows for name in row], np.int64)
    values = np.array([value for row in rows for value in row.values()], np.float64)
    return sparse_rows(model, indptr, indices, values, max_rows)


def _check_features_wanted(model: ServedModel) -> None:
    if model.takes_text:
        raise RequestError(422, f"model {quoted(model.name)} takes text, not features: send text")


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
