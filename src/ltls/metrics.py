"""Ranking metrics: precision, recall, nDCG and propensity-scored precision at k."""

from .evaluation.metrics import (
    label_matrix,
    ndcg_at_k,
    precision_at_k,
    propensities,
    propensities_of,
    psp_at_k,
    recall_at_k,
)

__all__ = [
    "label_matrix",
    "ndcg_at_k",
    "precision_at_k",
    "propensities",
    "propensities_of",
    "psp_at_k",
    "recall_at_k",
]
