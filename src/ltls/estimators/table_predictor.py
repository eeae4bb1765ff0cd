"""Prediction on Arrow tables: columns in, columns of labels, scores and probabilities out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.arrays import as_integer
from ..io.arrow import list_column, read_inputs
from ..io.tables import Columns
from ..model.among import allowed_labels
from .classifier import LTLSClassifier


class TablePredictor:
    """Predicts the best labels of the rows of Arrow tables.

    Parameters
    ----------
    estimator : LTLSClassifier
        A fitted estimator.
    columns : Columns
        The columns to read.
    k : int, default=5
        Labels per row.
    proba : bool, default=False
        Return probabilities, too.
    threshold : bool, default=False
        Multi-label only: of the k labels, return those that score at least `threshold_`.
    among : list or array of labels, optional
        Allow only these labels; see `LTLSClassifier.predict_topk`.
    """

    def __init__(
        self,
        estimator: LTLSClassifier,
        columns: Columns,
        k: int = 5,
        proba: bool = False,
        threshold: bool = False,
        among: Any = None,
    ) -> None:
        self.estimator, self.columns = estimator, columns
        self._k = as_integer("k", k, at_least=1)
        if proba and not estimator.model_.probabilistic:
            raise ValueError("proba must be False: loss='separation' has no probabilities")
        if threshold and not estimator.multilabel_:
            raise ValueError("threshold needs a multi-label model; use k=1 for the best label")
        self._proba, self._threshold = proba, threshold
        self._allowed = None
        if among is not None:
            self._allowed = allowed_labels(among, estimator.model_.labels, n_rows=None)

    def __call__(self, table: Any) -> dict[str, Any]:
        """Return columns of lists: labels, scores and probabilities, best first."""
        estimator, allowed = self.estimator, self._allowed
        model = estimator.model_
        k = min(self._k, model.n_labels if allowed is None else len(allowed.ids))
        ids, scores = np.empty((0, k), np.int64), np.empty((0, k), np.float32)
        proba = scores
        if len(table):
            inputs = read_inputs(self.columns, table, model.columns.n_features)
            rows, model = estimator._rows(inputs)
            ids, scores = model.topk_among(rows, k, allowed, estimator.n_jobs)
            if self._proba:
                proba = model.proba_among(rows, ids, allowed, estimator.n_jobs)
        kept = np.ones(ids.shape, bool)
        if self._threshold:
            kept = scores >= estimator.threshold_
        counts = kept.sum(axis=1)
        labels = model.classes[ids[kept]]
        if labels.dtype == object:  # of several types
            labels = np.array([str(label) for label in labels], str)
        found = {"labels": list_column(labels, counts), "scores": list_column(scores[kept], counts)}
        if self._proba:
            found["probabilities"] = list_column(proba[kept], counts)
        return found


def fitted_columns(
    estimator: LTLSClassifier, features: str | Sequence[str] | None, text: str | None
) -> Columns:
    """Return the columns that a fitted estimator reads: those given, else those of training."""
    recorded = estimator.fitted_.provenance.columns
    if recorded and not (features or text):
        features, text = recorded.get("features") or None, recorded.get("text")
    return Columns(**estimator.model_.front_end.settings.named_columns(features, text))
