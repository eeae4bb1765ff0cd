"""A size budget: how many of the weights of a model its file keeps."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from ..model.model import Fitted, Model
from .model_file import MODEL, encoded, labels_state
from .tensor_file import encode, encode_parameters

_STEP, _FEWEST = 0.8, 0.001  # of the weights: factor per step, and smallest fraction


def within_budget(fitted: Fitted, parameters: dict[str, Any], budget: int) -> Model:
    """Return a model with as many of the largest weights as fit into the budget.

    All parts are pruned to the same fraction. A model that fits is returned unchanged.
    """
    model, fraction = fitted.model, 1.0
    smaller, size = model, _size(fitted, parameters)
    while size > budget and (fraction := fraction * _STEP) >= _FEWEST:
        parts = [part.pruned(fraction) if hasattr(part, "pruned") else part for part in model.parts]
        smaller = model.with_parts(parts)
        if smaller.needed_rows is not None:
            smaller = replace(smaller, memory=smaller.needed_rows)
        size = _size(replace(fitted, model=smaller), parameters)
    if size > budget:
        raise _too_small(budget, model, f"{size:,}")
    return smaller


def check_smallest(problem: Any, n_tables: int, parameters: dict[str, Any], budget: int) -> None:
    """Raise an error if even a model without weights exceeds the budget; warn if n-grams fill it.

    Every one of `n_tables` tables of weights has at least a byte for every feature. `problem` is a
    `ltls.training.data.Problem`.
    """
    described, tensors = problem.front_end.state()
    tensors = {**tensors, **problem.columns.state()[1], **labels_state(problem.labels)[1]}
    tensors["counts"] = np.zeros(n_tables * problem.columns.n_columns, np.uint8)
    description = {"front_end": described, "parameters": encode_parameters(parameters)}
    size = len(encode(MODEL, description, tensors))
    if size > budget:
        raise _too_small(budget, problem, f"at least {size:,}")
    settings = problem.front_end.settings
    if 3 * size > budget and not settings.takes_matrix:
        warnings.warn(
            f"{size:,} of the {budget:,} bytes of size_budget are needed for the "
            f"{problem.columns.n_features:,} features and {len(problem.labels):,} labels, so that "
            f"few weights fit and accuracy is low; train again with {settings.fewer}",
            UserWarning,
            stacklevel=2,
        )


def _too_small(budget: int, owner: Any, size: str) -> ValueError:
    """Return the error for a model, or for a problem."""
    return ValueError(
        f"a size_budget of {budget:,} bytes is too small: the smallest model with "
        f"{owner.columns.n_features:,} features and {len(owner.labels):,} labels takes {size}; use "
        f"a larger budget, or train again with {owner.front_end.settings.fewer}"
    )


def _size(fitted: Fitted, parameters: dict[str, Any]) -> int:
    """Return the size of a model's file without the sections for further training."""
    model = replace(fitted.model, memory=fitted.model.needed_rows)
    return len(encoded(Fitted(model, fitted.provenance), parameters))
