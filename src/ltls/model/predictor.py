"""Low-latency prediction: single rows and small batches, from any thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ..core.arrays import AnyArray, Floats, as_int64, check_unmasked
from ..features.blocks import given_blocks, united
from ..features.rows import check_sparse, checked_values
from .model import Model


class Predictor:
    """The k best labels of single rows or small batches, with little overhead around the engine.

    Created by `LTLSClassifier.predictor`. It keeps the state of the model at that moment, whatever
    the estimator learns later. Any number of threads may call it at the same time; the GIL is
    released while the engine works on more than a few rows.

    Call it with a row: the non-zero features, ``predictor(indices, values)``, a text, or a row of a
    table, which is a dict. Or call it with several rows, as `LTLSClassifier.predict` takes them.

    Returns
    -------
    labels, scores : arrays of shape (k,), or (n_rows, k) for several rows
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

    def __init__(self, model: Model, k: int) -> None:
        self.k = min(k, model.n_labels)
        self._model, self._labels = model, model.classes

    def __repr__(self) -> str:
        return f"<Predictor of the {self.k} best of {len(self._labels)} labels>"

    def __call__(self, *row: Any) -> tuple[AnyArray, Floats]:
        """Return the best labels and their scores."""
        model = self._model
        first = row[0] if row else None
        # A DOK matrix is a mapping, too.
        one = len(row) == 2 or (isinstance(first, (str, Mapping)) and not hasattr(first, "tocsr"))
        if len(row) == 1:
            X = model.front_end.matrix([row[0]] if one else row[0])
        elif len(row) in (2, 3):
            X = self._sparse(*row)
        else:
            raise TypeError(f"a predictor takes a row, or rows, got {len(row)} arguments")
        ids, scores = model.topk(model.columns.rows(self._checked(X)), self.k, None)
        return (self._labels[ids[0]], scores[0]) if one else (self._labels[ids], scores)

    def _sparse(self, *arrays: Any) -> csr_array:
        """Return rows of given features; duplicate ones are summed."""
        check_unmasked("values", arrays[-1])
        indices, values = as_int64("indices", arrays[-2], ndim=1), np.asarray(arrays[-1])
        if values.dtype.kind not in "fiub":
            raise TypeError(f"values must be numbers, got {values.dtype}")
        if len(indices) != len(values):
            raise ValueError(
                f"indices and values must be of one length, got {len(indices)} and {len(values)}"
            )
        ptr = np.array([0, len(indices)]) if len(arrays) == 2 else as_int64("indptr", arrays[0], 1)
        dtype = np.float32 if values.dtype == np.float32 else np.float64
        n_features = self._model.columns.n_features
        if len(indices) and not 0 <= indices.min() <= indices.max() < n_features:
            bad = indices[(indices < 0) | (indices >= n_features)][0]
            raise ValueError(f"indices must be between 0 and {n_features - 1}, got {bad}")
        shape = (len(ptr) - 1, n_features)
        return csr_array((values.astype(dtype), indices, ptr), shape=shape)

    def _checked(self, X: Any) -> Any:
        if (blocks := given_blocks(X)) is not None:
            X = united([self._checked_matrix(block) for block in blocks])
        else:
            X = self._checked_matrix(X)
        if X.shape[-1] != self._model.columns.n_features:
            n_features = self._model.columns.n_features
            raise ValueError(f"X has {X.shape[-1]} features, expected {n_features}")
        return X

    @staticmethod
    def _checked_matrix(X: Any) -> Any:
        if hasattr(X, "tocsr"):
            check_sparse(X, "X")
            X = X.tocsr()
        else:
            check_unmasked("X", X)
            X = np.atleast_2d(np.asarray(X))
        return checked_values(X if X.dtype in (np.float32, np.float64) else X.astype(np.float64))
