"""Data frames and columns of pandas, polars, Arrow and others, through narwhals."""

from __future__ import annotations

from typing import Any

import narwhals.stable.v2 as nw
import numpy as np


def as_frame(name: str, given: Any) -> nw.DataFrame[Any] | None:
    """Return an argument that is a data frame, None for any other."""
    found = _known(name, given)
    return found if isinstance(found, nw.DataFrame) else None


def unframed(name: str, given: Any) -> Any:
    """Return the values of a data frame or of a column as an array, anything else as it is."""
    found = _known(name, given)
    if isinstance(found, (nw.DataFrame, nw.Series)):
        return found.to_numpy()
    if hasattr(given, "__arrow_c_array__"):  # of Arrow's columns, narwhals knows the chunked ones
        return np.asarray(given)
    return given


def _known(name: str, given: Any) -> Any:
    """Return a data frame or a column as narwhals has it, anything else as it is."""
    if isinstance(given, (list, tuple, np.ndarray)):  # narwhals takes 40 µs to say no
        return given
    found = nw.from_native(given, pass_through=True, allow_series=True)
    if isinstance(found, nw.LazyFrame):
        kind = type(given).__name__
        raise ValueError(f"{name} must be a data frame in memory, got a {kind}: call its collect()")
    return found
