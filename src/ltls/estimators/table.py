"""Prediction on Arrow tables: columns in, columns of labels, scores and probabilities out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.arrays import as_integer
from ..io.arrow import InputColumns, list_column
from .among import allowed_labels
from .classifier import LTLSClassifier
from .table_classifier import TableClassifier


class TablePredictor:
    """The best labels of the rows of Arrow tables.

    Parameters
    ----------
    estimator : LTLSClassifier
        A fitted one.
    columns : InputColumns
    k : int, default=5
        Labels per row.
    proba : bool, default=False
        Return probabilities, too.
    threshold : bool, default=False
        Multi-label models: only those of the k labels that reach the model's threshold.
    among : list or array of labels, optional
        Allow only these labels; see `LTLSClassifier.predict_topk`.
    """

    def __init__(
        self,
        estimator: LTLSClassifier,
        columns: InputColumns,
        k: int = 5,
        proba: bool = False,
        threshold: bool = False,
        among: Any = None,
    ) -> None:
        self.estimator, self.columns = estimator, columns
        self._k = as_integer("k", k, at_least=1)
        if proba and not hasattr(estimator, "predict_proba"):
            loss = estimator.model_.loss.name
            raise ValueError(f"models with loss={loss!r} have no probabilities (proba)")
        if threshold and not estimator.multilabel_:
            raise ValueError("threshold is for multi-label models; use k=1")
        self._proba, self._threshold = proba, threshold
        self._allowed = None
        if among is not None:
            self._allowed = allowed_labels(among, estimator.model_.labels, n_rows=None)

    def __call__(self, table: Any) -> dict[str, Any]:
        """Return columns of lists: labels, scores and probabilities, best first."""
        estimator = self.estimator
        model = estimator.model_
        n_allowed = len(model.labels) if self._allowed is None else len(self._allowed.ids)
        k = min(self._k, n_allowed)
        X, ids, scores = None, np.empty((0, k), np.int64), np.empty((0, k), np.float32)
        if len(table):
            rows = self.columns.read(table, model.n_features)
            X, model = estimator._checked(rows)
            ids, scores = model.topk_among(X, k, self._allowed, estimator.n_jobs)
        kept = np.ones(ids.shape, bool)
        if self._threshold:
            kept = scores >= estimator.threshold_
        counts = kept.sum(axis=1)
        labels = model.labels.array[ids[kept]]
        if labels.dtype == object:  # of several types
            labels = np.array([str(label) for label in labels], str)
        found = {"labels": list_column(labels, counts), "scores": list_column(scores[kept], counts)}
        if self._proba:
            shares = scores
            if X is not None:
                shares = model.proba_among(X, ids, self._allowed, estimator.n_jobs)
            found["probabilities"] = list_column(shares[kept], counts)
        return found


def input_columns(
    estimator: LTLSClassifier, features: str | Sequence[str] | None, text: str | None
) -> InputColumns:
    """Return the columns to read: as given, else as recorded in the model."""
    if isinstance(estimator, TableClassifier):
        names = tuple(estimator.vectorizer_.columns.names)
        if features or text:
            raise ValueError(f"the model takes the columns {', '.join(names)}: name no others")
        return InputColumns(mixed=names)
    recorded = estimator.model_.columns or {}
    takes_text = hasattr(estimator, "vectorizer_")
    if not features and not text:
        features, text = recorded.get("features") or None, recorded.get("text")
    if bool(text) != takes_text or not (features or text):
        wants = ("features", "text")[takes_text]
        raise ValueError(f"the model takes {wants}: name the columns with {wants}")
    return InputColumns.of(features, text)


def record_columns(estimator: LTLSClassifier, columns: InputColumns) -> None:
    """Record in a fitted model which columns it reads, for `input_columns`."""
    before = estimator.model_.columns or {"label": None, "separator": None}
    estimator.model_.columns = {**before, "text": columns.text, "features": list(columns.features)}
