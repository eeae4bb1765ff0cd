"""Answers for services: a row in, labels and scores out, in microseconds and from any thread."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from .. import _engine
from ..core.arrays import as_int64
from .decoder import Decoder
from ..linear.weights import LinearModel
from ..features.rows import engine_features
from .embedding import CANDIDATES, Embedding


class Predictor:
    """The k best labels of single rows or small batches, with little in front of the engine.

    Made by `LTLSClassifier.predictor`. It answers as the model was then, whatever the estimator
    learns later. Any number of threads may call it at once; the GIL is released while the engine
    works on more than a few rows.

    Call it with the non-zero features of one row, ``predictor(indices, values)``; with those of
    several, ``predictor(indptr, indices, values)`` as in a CSR matrix; or with a CSR matrix itself.
    It is quickest with NumPy arrays of features in increasing order.

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
        decoder: Decoder,
        linear: LinearModel,
        embedding: Embedding | None,
        k: int,
    ) -> None:
        self.k = min(k, decoder.n_labels)
        self._labels = labels
        self._decoder = decoder
        self._linear = linear
        self._embedding = embedding
        self._n = self.k if embedding is None else min(max(k, CANDIDATES), decoder.n_labels)
        self._engine = decoder.predictor(linear, self._n)

    def __repr__(self) -> str:
        return f"<Predictor of the {self.k} best of {len(self._labels)} labels>"

    def __call__(self, *row: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """Return the best labels and their scores."""
        if len(row) == 2:
            indptr, (indices, values) = None, row
            ids, scores = np.empty(self._n, np.int64), np.empty(self._n, np.float32)
        else:
            indptr, indices, values = row if len(row) == 3 else self._parts(*row)
            shape = (len(indptr) - 1, self._n)
            ids, scores = np.empty(shape, np.int64), np.empty(shape, np.float32)
        complete = self._engine.answer(indptr, indices, values, ids, scores)
        if complete is None:  # lists, mixed types, odd layouts
            indptr, indices, values = self._plain(indptr, indices, values)
            complete = self._engine.answer(indptr, indices, values, ids, scores)
        if complete is None:  # features in any order, some twice
            indptr, indices, values = self._in_order(indptr, indices, values)
            complete = self._engine.answer(indptr, indices, values, ids, scores)
        if not complete:
            self._search_wider(indptr, indices, values, ids, scores)
        if self._embedding is not None:
            self._rescore(indptr, indices, values, ids, scores)
            ids, scores = ids[..., : self.k], scores[..., : self.k]
        return self._labels[ids], scores

    def _rescore(self, indptr: Any, indices: Any, values: Any, ids: Any, scores: Any) -> None:
        embedding = self._embedding
        assert embedding is not None
        indptr = np.array([0, len(indices)], indices.dtype) if indptr is None else indptr
        n_features, unit_length = self._linear.n_features, self._linear.unit_length
        features = _engine.Features.csr(values, indices, indptr, n_features, False, unit_length)
        vectors = embedding.row_vectors(features, 0, len(indptr) - 1, None)
        embedding.rescore(vectors, ids.reshape(-1, self._n), scores.reshape(-1, self._n), None)

    def _parts(self, *row: Any) -> tuple[Any, Any, Any]:
        if len(row) != 1 or not hasattr(row[0], "indptr"):
            raise TypeError(
                "a predictor takes (indices, values), (indptr, indices, values) or a CSR matrix, "
                f"got {', '.join(type(each).__name__ for each in row) or 'nothing'}"
            )
        X = row[0]
        if X.shape[-1] != self._linear.n_features:
            raise ValueError(f"X has {X.shape[-1]} features, expected {self._linear.n_features}")
        return X.indptr, X.indices, X.data

    def _plain(self, indptr: Any, indices: Any, values: Any) -> tuple[Any, Any, Any]:
        """Return the arrays of rows as types that the engine reads."""
        values = np.asarray(values)
        if values.dtype.kind not in "fiub":
            raise TypeError(f"values must be numbers, got {values.dtype}")
        dtype = np.float32 if values.dtype == np.float32 else np.float64
        values = np.require(values, dtype, ["C", "A"])
        if indptr is not None:
            indptr = as_int64("indptr", indptr, ndim=1)
        return indptr, as_int64("indices", indices, ndim=1), values

    def _in_order(self, indptr: Any, indices: Any, values: Any) -> tuple[Any, Any, Any]:
        """Sort the features of rows; entries of the same feature count as their sum."""
        ends = np.array([0, len(indices)]) if indptr is None else indptr
        shape = (len(ends) - 1, self._linear.n_features)
        X = csr_array((values, indices, ends), shape=shape, copy=True)
        X.sum_duplicates()
        return None if indptr is None else X.indptr, X.indices, X.data

    def _search_wider(self, indptr: Any, indices: Any, values: Any, ids: Any, scores: Any) -> None:
        """Answer the rows whose best paths hold too few labels."""
        indptr = np.array([0, len(indices)]) if indptr is None else indptr
        shape = (len(indptr) - 1, self._linear.n_features)
        ids, scores = ids.reshape(-1, self._n), scores.reshape(-1, self._n)  # views
        lacking = np.flatnonzero(ids[:, -1] < 0)
        X = csr_array((values, indices, indptr), shape=shape)[lacking]
        features = engine_features(X, self._linear.intercept, self._linear.unit_length)
        h = self._linear.edge_scores(features, 0, len(lacking), None)
        ids[lacking], scores[lacking] = self._decoder.topk(h, self._n)
