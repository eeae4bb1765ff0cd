"""Hyperparameter search within a time limit."""

from .estimators.tuning import SEARCH_SPACE, precision_at_1, tune

__all__ = ["SEARCH_SPACE", "precision_at_1", "tune"]
