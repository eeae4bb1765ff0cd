"""Temporary: the new public names of the estimators, until they are part of the classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from .classifier import LTLSClassifier


class _LossName(str):
    @property
    def name(self) -> str:
        return str(self)


def _model(self: Any) -> Any:
    model = self._fitted()
    model.loss = _LossName(model.loss)
    return model


def _vectorizer(self: Any) -> Any:
    return self.vectoriser_


def _check_parameters(self: Any) -> None:
    self._validate_params()


_predict_topk = LTLSClassifier.predict_topk


def predict_topk(self: Any, X: Any, k: int, proba: bool = False) -> Any:
    labels, scores = _predict_topk(self, X, k)
    if not proba:
        return labels, scores
    ids = np.vectorize(self.model_.labels.id, otypes=[np.int64])(labels)
    scores = np.take_along_axis(self.predict_proba(X), ids, axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")
    return tuple(np.take_along_axis(each, order, axis=1) for each in (labels, scores))


LTLSClassifier.model_ = property(_model)  # type: ignore[attr-defined]
LTLSClassifier.vectorizer_ = property(_vectorizer)  # type: ignore[attr-defined]
LTLSClassifier.check_parameters = _check_parameters  # type: ignore[attr-defined]
LTLSClassifier.predict_topk = predict_topk  # type: ignore[method-assign]
