"""Size budgets: the largest weights that fit into a file of a given size."""

from __future__ import annotations

from ..linear.weights import PrunedWeights, Weights
from .model_file import SavedModel, file_bytes

_STEP = 0.8  # by which the number of weights decreases
_FEWEST = 0.001  # of the weights: a model of fewer is not worth having


def fit_into_budget(saved: SavedModel, budget: int) -> None:
    """Drop the smallest weights of a model until its file is no larger than a budget in bytes.

    Weights of the trellises and of the labels decrease in the same proportion. A model that fits
    stays as it is.
    """
    model = saved.model
    if file_bytes(saved, "int8") <= budget:
        return
    before = model.frozen, model.label_weights
    weights, label_weights = model.weights, model.label_weights
    if isinstance(weights, PrunedWeights):
        n_kept = len(weights.values)
        size = len(weights.scales) * weights.n_trellises * weights.n_edges
        full, density = weights.to_dense(), n_kept / max(size, 1)
    else:
        full, density = weights, 1.0
    fraction = 1.0
    while (fraction := fraction * _STEP) >= _FEWEST:
        model.frozen = _pruned(full, fraction * density)
        if label_weights is not None:
            model.label_weights = label_weights.prune(fraction)
        if file_bytes(saved, "int8") <= budget:
            return
    smallest = file_bytes(saved, "int8")
    model.frozen, model.label_weights = before
    raise ValueError(
        f"size_budget of {budget:,} bytes is too small: the smallest model of "
        f"{model.n_features:,} features and {len(model.labels):,} labels takes {smallest:,}; use a "
        "larger budget or fewer features"
    )


def _pruned(weights: Weights, density: float) -> PrunedWeights:
    return weights.prune(weights.magnitude_at(density))
