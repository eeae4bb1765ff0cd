"""Load a fitted estimator from a model file."""

from ..storage.model_file import load

__all__ = ["load"]
