"""What an estimator is given, checked: features, weights of rows and of labels."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_array, validate_data

from ..model.labels import Labels

_LARGEST_VALUE = 1e15  # of a feature


def checked_features(estimator: Any, X: Any, reset: bool) -> Any:
    """Return X as the engine takes it: C-ordered, or CSR without duplicates; of sane size."""
    X = validate_data(
        estimator,
        X,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        order="C",
        reset=reset,
    )
    if hasattr(X, "indptr") and X.nnz:
        if X.indices.min() < 0 or X.indices.max() >= X.shape[1]:
            raise ValueError(
                f"X is not a valid CSR matrix: it has feature {X.indices.min()} to "
                f"{X.indices.max()}, not 0 to {X.shape[1] - 1}"
            )
        if not X.has_canonical_format:  # duplicate entries count as their sum
            X = X.copy()
            X.sum_duplicates()
    values = X.data if hasattr(X, "indptr") else X
    if values.size and max(values.max(), -values.min()) > _LARGEST_VALUE:
        raise ValueError(
            f"X must hold values of at most {_LARGEST_VALUE:g}, since weights are float32; "
            f"got {values.flat[np.abs(values).argmax()]:g}: scale the features"
        )
    return X


def row_weights(sample_weight: Any, n_rows: int) -> npt.NDArray[np.float32]:
    """Return sample_weight as one number a row."""
    weights: npt.NDArray[np.float32] = check_array(
        np.asarray(sample_weight), ensure_2d=False, dtype=np.float32, input_name="sample_weight"
    )
    if weights.ndim == 0:
        weights = np.full(n_rows, weights)
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight.shape == {weights.shape}, expected ({n_rows},): one weight a row"
        )
    if (weights < 0).any():
        raise ValueError("Negative values in data passed to `sample_weight`")
    return weights


def known_classes(classes: Any) -> list[Any]:
    """Return the labels that `partial_fit` is told of, each once."""
    if classes is None:
        return []
    listed = classes.tolist() if isinstance(classes, np.ndarray) else list(classes)
    return list(dict.fromkeys(listed))


def check_class_weight(class_weight: Any) -> None:
    """Refuse weights of labels that are no weights."""
    for label, weight in class_weight.items() if isinstance(class_weight, dict) else ():
        if not isinstance(weight, Real) or not 0 <= float(weight) < np.inf:
            raise ValueError(
                f"class_weight must hold numbers of at least 0, got {weight!r} for {label!r}"
            )


def class_weights(
    class_weight: dict[Any, float] | str,
    labels: Labels,
    ids: npt.NDArray[np.int64],
    indptr: npt.NDArray[np.int64],
) -> npt.NDArray[np.float32]:
    """Return the mean weight of every row's labels, 1 for a row without any."""
    n_rows = len(indptr) - 1
    if isinstance(class_weight, dict):
        of_labels = np.ones(len(labels))
        for label, weight in class_weight.items():
            if label in labels:
                of_labels[labels.id(label)] = weight
    else:
        counts = np.maximum(np.bincount(ids, minlength=len(labels)), 1)
        of_labels = n_rows / (len(labels) * counts)
    per_row = np.diff(indptr)
    sums = np.bincount(np.repeat(np.arange(n_rows), per_row), of_labels[ids], n_rows)
    means = np.where(per_row > 0, sums / np.maximum(per_row, 1), 1)
    return means.astype(np.float32)
