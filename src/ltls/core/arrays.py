"""Arguments for the engine: validated integers and contiguous int64 arrays."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import numpy.typing as npt


def as_integer(
    name: str, value: Any, at_least: int | None = None, at_most: int | None = None
) -> int:
    """Return an integer argument as an int, or raise an error that names it."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if at_least is not None and number < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {number}")
    if at_most is not None and number > at_most:
        raise ValueError(f"{name} must be at most {at_most}, got {number}")
    return number


def as_int64(name: str, values: npt.ArrayLike, ndim: int | None = None) -> npt.NDArray[np.int64]:
    """Return integers as a contiguous int64 array, copied only if necessary."""
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind == "O" and all(isinstance(value, int) for value in array.flat):
        if max(map(abs, array.flat)) >= 2**63:
            raise ValueError(f"{name} must be within 64 bits, got {max(array.flat, key=abs)}")
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got {array.dtype}")
    if array.dtype == np.uint64 and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} must be within 64 bits, got {array.max()}")
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s), got shape {array.shape}")
    return np.require(array, np.int64, ["C", "A"]).reshape(array.shape)


def threads(n_jobs: int | None) -> int:
    """Return the engine's number of threads for `n_jobs`: None is one, −1 all cores."""
    return 1 if n_jobs is None else as_integer("n_jobs", n_jobs)
