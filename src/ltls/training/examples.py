"""From features and targets to training examples with row weights."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..model.examples import Examples
from ..model.labels import Labels, Targets

Ints: TypeAlias = npt.NDArray[np.int64]


def make_examples(
    labels: Labels,
    X: Any,
    targets: Targets,
    sample_weight: npt.NDArray[np.float32] | None,
    class_weight: dict[Any, float] | str | None,
) -> Examples:
    """Return rows with label ids, and the product of sample and class weights."""
    ids = labels.ids(targets)
    if targets.multilabel:  # sort the ids of every row, as in a canonical indicator matrix
        rows = np.repeat(np.arange(targets.n_rows), np.diff(targets.indptr))
        ids = ids[np.lexsort((ids, rows))]
    weights = sample_weight
    if class_weight is not None:
        of_rows = class_weights(class_weight, labels, ids, targets.indptr)
        weights = of_rows if weights is None else weights * of_rows
    return Examples(X, targets.indptr, ids, weights, targets.multilabel)


def check_class_weight_labels(class_weight: dict[Any, float] | str | None, labels: Labels) -> None:
    """Raise an error if class_weight has a label that does not occur."""
    for label in class_weight if isinstance(class_weight, dict) else ():
        if label not in labels:
            raise ValueError(f"class_weight must have labels that occur in y, got {label!r}")


def class_weights(
    class_weight: dict[Any, float] | str, labels: Labels, ids: Ints, indptr: Ints
) -> npt.NDArray[np.float32]:
    """Return the mean class weight of every row's labels, 1 for a row without labels."""
    n_rows = len(indptr) - 1
    if isinstance(class_weight, dict):
        of_labels = np.ones(len(labels))
        for label, weight in class_weight.items():
            if label in labels:
                of_labels[labels.id(label)] = weight
    else:
        of_labels = balanced_weights(np.bincount(ids, minlength=len(labels)), n_rows)
    per_row = np.diff(indptr)
    sums = np.bincount(np.repeat(np.arange(n_rows), per_row), of_labels[ids], n_rows)
    means = np.where(per_row > 0, sums / np.maximum(per_row, 1), 1)
    return means.astype(np.float32)


def balanced_weights(counts: Ints, n_rows: int) -> npt.NDArray[np.float64]:
    """Return class weights inversely proportional to the labels' frequencies."""
    weights: npt.NDArray[np.float64] = n_rows / (len(counts) * np.maximum(counts, 1))
    return weights
