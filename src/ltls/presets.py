"""Estimators with the settings of a paper."""

from .estimators.presets import paper

__all__ = ["paper"]
