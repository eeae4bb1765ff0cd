"""Metrics: precision, recall, nDCG, PSP, macro-F1 and coverage at k; calibration error."""

from .evaluation.metrics import (
    calibration_error,
    coverage_at_k,
    label_matrix,
    macro_f1_at_k,
    ndcg_at_k,
    precision_at_k,
    propensities,
    propensities_of,
    psp_at_k,
    recall_at_k,
)

__all__ = [
    "calibration_error",
    "coverage_at_k",
    "label_matrix",
    "macro_f1_at_k",
    "ndcg_at_k",
    "precision_at_k",
    "propensities",
    "propensities_of",
    "psp_at_k",
    "recall_at_k",
]
