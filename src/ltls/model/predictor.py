"""Prediction of one row at a time, from any thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ..core.arrays import AnyArray, Floats, as_frame, as_int64, check_unmasked, unlisted
from ..features.rows import check_features, check_sparse, checked_values


class Predictor:
    """Predicts the k best labels of single rows, as `LTLSClassifier.predict_topk` with one thread.

    Created by `LTLSClassifier.predictor`. It is a snapshot: later training of the estimator does
    not change it. Any number of threads may call it at the same time; the GIL is released while the
    engine works on more than a few rows. It is about as fast as `predict_topk`; indices and values
    take longer, since they are converted to a CSR matrix first.

    Call it with one row: the non-zero features as ``predictor(indices, values)``, a text, or a
    table row as a dict. Or call it with several rows, in any form that `LTLSClassifier.predict`
    accepts, or as the arrays of a CSR matrix, ``predictor(indptr, indices, values)``.

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

    def __init__(self, owner: Any, k: int) -> None:
        # Copies, since the estimator may change. The second is for rows without feature names.
        self._owner = _copied(owner)
        self._nameless = _copied(self._owner)
        self._nameless.__dict__.pop("feature_names_in_", None)
        self._model = self._owner.model_
        self.k, self._labels = min(k, self._model.n_labels), self._model.classes

    def __repr__(self) -> str:
        return f"<Predictor of the {self.k} best of {len(self._labels)} labels>"

    def __call__(self, *row: Any) -> tuple[AnyArray, Floats]:
        """Return the best labels and their scores."""
        model = self._model
        first = row[0] if row else None
        # A DOK matrix is a mapping, too.
        one = len(row) == 2 or (isinstance(first, (str, Mapping)) and not hasattr(first, "tocsr"))
        if len(row) == 1:
            X = model.front_end.matrix([first] if one else first)
            if isinstance(X, (list, tuple)) and X and np.isscalar(X[0]):
                X = np.array(X)
            is_sparse = hasattr(X, "tocsr")
            if not is_sparse and getattr(X, "ndim", 2) == 1:  # one dense row
                X = np.atleast_2d(unlisted("X", X))
            named = not is_sparse and as_frame("X", X) is not None
            X = check_features(self._owner if named else self._nameless, X, reset=False)
        elif len(row) in (2, 3):
            X = self._sparse(*row)
        else:
            raise TypeError(
                "a predictor takes one or more rows, or the indices and values of one row, got "
                f"{len(row)} arguments"
            )
        ids, scores = model.topk(model.columns.rows(X), self.k, None)
        return (self._labels[ids[0]], scores[0]) if one else (self._labels[ids], scores)

    def _sparse(self, *arrays: Any) -> csr_array:
        """Return rows with the given features; duplicates are summed."""
        check_unmasked("values", arrays[-1])
        indices, values = as_int64("indices", arrays[-2], ndim=1), np.asarray(arrays[-1])
        if values.dtype.kind not in "fiub":
            raise TypeError(f"values must be numbers, got {values.dtype}")
        if len(indices) != len(values):
            raise ValueError(
                f"indices and values must have the same length, got {len(indices)} and "
                f"{len(values)}"
            )
        ptr = np.array([0, len(indices)]) if len(arrays) == 2 else as_int64("indptr", arrays[0], 1)
        dtype = np.float32 if values.dtype == np.float32 else np.float64
        n_features = self._model.columns.n_features
        if len(indices) and not 0 <= indices.min() <= indices.max() < n_features:
            bad = indices[(indices < 0) | (indices >= n_features)][0]
            raise ValueError(f"indices must be between 0 and {n_features - 1}, got {bad}")
        X = csr_array((values.astype(dtype), indices, ptr), shape=(len(ptr) - 1, n_features))
        check_sparse(X, "the row")
        return checked_values(X)


def _copied(estimator: Any) -> Any:
    made = object.__new__(type(estimator))
    made.__dict__.update(estimator.__dict__)
    return made
