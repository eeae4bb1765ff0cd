"""Validation of what estimators are given: features, sample weights and class weights."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils._param_validation import InvalidParameterError, validate_parameter_constraints
from sklearn.utils.validation import check_array, validate_data

from ..features.rows import check_sparse

_LARGEST_VALUE = 1e15  # of a feature


class ParameterError(InvalidParameterError):  # type: ignore[misc]
    """A parameter of an estimator is invalid.

    `parameter` is its name, and `reason` says what it must be and what was given.
    """

    def __init__(self, estimator: str, parameter: str, reason: str) -> None:
        super().__init__(f"The {parameter!r} parameter of {estimator} {reason}")
        self.parameter, self.reason = parameter, reason


def check_parameters(estimator: str, constraints: dict[str, Any], values: dict[str, Any]) -> None:
    """Raise a `ParameterError` for the first parameter that violates its constraints."""
    for name, value in values.items():
        own = {name: constraints.get(name, "no_validation")}
        try:
            validate_parameter_constraints(own, {name: value}, estimator)
        except InvalidParameterError as error:
            prefix = f"The {name!r} parameter of {estimator} "
            raise ParameterError(estimator, name, str(error).removeprefix(prefix)) from None


def check_features(estimator: Any, X: Any, reset: bool) -> Any:
    """Return X as the engine takes it: C-ordered, or CSR without duplicates."""
    if hasattr(X, "tocsr"):
        check_sparse(X, "X")
    X = validate_data(
        estimator,
        X,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        order="C",
        reset=reset,
    )
    if hasattr(X, "indptr") and not X.has_canonical_format:  # duplicate entries are summed
        X = X.copy()
        X.sum_duplicates()
    values = X.data if hasattr(X, "indptr") else X
    if values.size and max(values.max(), -values.min()) > _LARGEST_VALUE:
        raise ValueError(
            f"X must hold values of at most {_LARGEST_VALUE:g}, since weights are float32; "
            f"got {values.flat[np.abs(values).argmax()]:g}: scale the features"
        )
    return X


def check_sample_weight(sample_weight: Any, n_rows: int) -> npt.NDArray[np.float32]:
    """Return sample_weight as one number per row."""
    weights: npt.NDArray[np.float32] = check_array(
        np.asarray(sample_weight), ensure_2d=False, dtype=np.float32, input_name="sample_weight"
    )
    if weights.ndim == 0:
        weights = np.full(n_rows, weights)
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight.shape == {weights.shape}, expected ({n_rows},): one weight per row"
        )
    if (weights < 0).any():
        raise ValueError("Negative values in data passed to `sample_weight`")
    return weights


def known_classes(classes: Any) -> list[Any]:
    """Return the distinct labels of the `classes` argument of `partial_fit`."""
    if classes is None:
        return []
    listed = classes.tolist() if isinstance(classes, np.ndarray) else list(classes)
    return list(dict.fromkeys(listed))


def check_class_weight(class_weight: Any) -> None:
    """Raise an error if class_weight has invalid weights."""
    for label, weight in class_weight.items() if isinstance(class_weight, dict) else ():
        if not isinstance(weight, Real) or not 0 <= float(weight) < np.inf:
            raise ValueError(
                f"class_weight must hold numbers of at least 0, got {weight!r} for {label!r}"
            )
