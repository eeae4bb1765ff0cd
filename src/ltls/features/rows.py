"""Rows of features as the engine takes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _engine


def engine_features(X: Any, intercept: bool, unit_length: bool) -> _engine.Features:
    """Hand a CSR matrix without duplicates, or a dense one, to the engine, without a copy."""
    if not hasattr(X, "indptr"):
        return _engine.Features.dense(
            np.require(X, requirements=["C", "A"]), intercept, unit_length
        )
    index = X.indices.dtype if X.indices.dtype == X.indptr.dtype else np.int64
    data = np.require(X.data, requirements=["C", "A"])
    indices, indptr = (np.require(part, index, ["C", "A"]) for part in (X.indices, X.indptr))
    return _engine.Features.csr(data, indices, indptr, X.shape[1], intercept, unit_length)
