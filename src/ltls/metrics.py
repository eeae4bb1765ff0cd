"""Metrics: precision, recall, nDCG, PSP, macro-F1 and coverage at k; calibration error."""

from .evaluation.metrics import *  # noqa: F403
from .evaluation.metrics import __all__ as __all__
