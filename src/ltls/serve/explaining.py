"""Explanations of predictions, where the estimator has them."""

from __future__ import annotations

from typing import Any

from ..estimators.classifier import LTLSClassifier
from .errors import RequestError


def can_explain(estimator: LTLSClassifier) -> bool:
    """Return whether a model can explain its predictions."""
    return hasattr(estimator, "explain")


def explanations(estimator: LTLSClassifier, X: Any, k: int) -> list[list[dict[str, Any]]]:
    """Return for every row the explanations of its k best labels, as JSON values."""
    if not can_explain(estimator):
        raise RequestError(501, "this version of ltls has no explanations: leave out explain")
    found: Any = estimator.explain(X, k=k)
    return [[dict(each) for each in row] for row in found]
