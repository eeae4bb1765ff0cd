"""Explanations of predictions."""

from __future__ import annotations

from typing import Any

from ..estimators.classifier import LTLSClassifier


def explanations(estimator: LTLSClassifier, X: Any, k: int) -> list[list[dict[str, Any]]]:
    """Return for every row the explanations of its k best labels, as JSON values."""
    return [[each.to_dict() for each in row] for row in estimator.explain(X, k=k)]
