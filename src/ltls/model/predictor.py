"""Low-latency prediction: single rows and small batches, from any thread."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from ..core.arrays import as_int64
from ..features.mapping import FeatureMap
from ..features.rows import SparseRows, check_sparse
from ..features.scaling import Standardizer
from .topk import TopK


class Predictor:
    """The k best labels of single rows or small batches, with little overhead around the engine.

    Created by `LTLSClassifier.predictor`. It keeps the state of the model at that moment, whatever
    the estimator learns later. Any number of threads may call it at the same time; the GIL is
    released while the engine works on more than a few rows.

    Call it with the non-zero features of one row, ``predictor(indices, values)``; with those of
    several, ``predictor(indptr, indices, values)`` as in a CSR matrix; or with a CSR matrix. It is
    fastest with NumPy arrays whose indices increase.

    Returns
    -------
    labels, scores : arrays of shape (k,), or (n_rows, k) for several rows or a matrix
        The best labels and their scores, best first, as from `LTLSClassifier.predict_topk`.

    Examples
    --------
    >>> import numpy as np
    >>> from ltls import LTLSClassifier
    >>> X, y = np.eye(4), ["ant", "bee", "cat", "dog"]
    >>> predictor = LTLSClassifier(random_state=0).fit(X, y).predictor(k=2)
    >>> labels, scores = predictor(np.array([2]), np.array([1.0]))
    >>> labels[0].item(), scores.shape
    ('cat', (2,))
    """

    def __init__(
        self,
        labels: npt.NDArray[Any],
        topk: TopK,
        mapping: FeatureMap | Standardizer | None = None,
    ) -> None:
        self.k = topk.k
        self._labels = labels
        self._topk = topk
        self._map = mapping
        own = mapping if isinstance(mapping, FeatureMap) else topk.weights
        self._n_features = own.n_features

    def __repr__(self) -> str:
        return f"<Predictor of the {self.k} best of {len(self._labels)} labels>"

    def __call__(self, *row: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """Return the best labels and their scores."""
        if self._map is not None:
            return self._predict_mapped(self._map, row)
        n, engine = self._topk.n_found, self._topk.engine
        if len(row) == 2:
            indptr, (indices, values) = None, row
            ids, scores = np.empty(n, np.int64), np.empty(n, np.float32)
        else:
            indptr, indices, values = row if len(row) == 3 else self._arrays_of(*row)
            shape = (len(indptr) - 1, n)
            ids, scores = np.empty(shape, np.int64), np.empty(shape, np.float32)
        complete = engine.predict_csr(indptr, indices, values, ids, scores)
        if complete is None:  # lists, mixed types, unusual memory layouts
            indptr, indices, values = self._as_arrays(indptr, indices, values)
            complete = engine.predict_csr(indptr, indices, values, ids, scores)
        if complete is None:  # unsorted or duplicate features
            indptr, indices, values = self._sorted(indptr, indices, values)
            complete = engine.predict_csr(indptr, indices, values, ids, scores)
        if not complete or self._topk.rerankers:
            ends = np.array([0, len(indices)], indices.dtype) if indptr is None else indptr
            X = SparseRows(values, indices, ends, (len(ends) - 1, self._n_features))
            self._topk.complete(X, ids.reshape(-1, n), scores.reshape(-1, n), None)
            ids, scores = ids[..., : self.k], scores[..., : self.k]
        return self._labels[ids], scores

    def _predict_mapped(
        self, mapping: FeatureMap | Standardizer, row: tuple[Any, ...]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """Predict with weights for some of the features only, or with standardized features."""
        one_row = len(row) == 2
        given = (None, *row) if one_row else row if len(row) == 3 else self._arrays_of(*row)
        indptr, indices, values = self._as_arrays(*given)
        ends = np.array([0, len(indices)]) if one_row else indptr
        shape = (len(ends) - 1, self._n_features)
        X = csr_array((values, indices, ends), shape=shape, copy=True)
        check_sparse(X, "X")
        X.sum_duplicates()
        rows = mapping.compact(X) if isinstance(mapping, FeatureMap) else mapping(X)
        ids, scores = self._topk(rows, None)
        return (self._labels[ids[0]], scores[0]) if one_row else (self._labels[ids], scores)

    def _arrays_of(self, *row: Any) -> tuple[Any, Any, Any]:
        if len(row) != 1 or not hasattr(row[0], "indptr"):
            raise TypeError(
                "a predictor takes (indices, values), (indptr, indices, values) or a CSR matrix, "
                f"got {', '.join(type(each).__name__ for each in row) or 'nothing'}"
            )
        X = row[0]
        if X.format != "csr":
            check_sparse(X, "X")
            X = X.tocsr()
        if X.shape[-1] != self._n_features:
            raise ValueError(f"X has {X.shape[-1]} features, expected {self._n_features}")
        return X.indptr, X.indices, X.data

    def _as_arrays(self, indptr: Any, indices: Any, values: Any) -> tuple[Any, Any, Any]:
        """Convert rows to arrays of types that the engine reads."""
        values = np.asarray(values)
        if values.dtype.kind not in "fiub":
            raise TypeError(f"values must be numbers, got {values.dtype}")
        dtype = np.float32 if values.dtype == np.float32 else np.float64
        values = np.require(values, dtype, ["C", "A"])
        if indptr is not None:
            indptr = as_int64("indptr", indptr, ndim=1)
        return indptr, as_int64("indices", indices, ndim=1), values

    def _sorted(self, indptr: Any, indices: Any, values: Any) -> tuple[Any, Any, Any]:
        """Sort the features of every row; duplicate entries are summed."""
        ends = np.array([0, len(indices)]) if indptr is None else indptr
        shape = (len(ends) - 1, self._n_features)
        X = csr_array((values, indices, ends), shape=shape, copy=True)
        X.sum_duplicates()
        return None if indptr is None else X.indptr, X.indices, X.data
