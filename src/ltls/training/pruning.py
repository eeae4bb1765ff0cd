"""Pruning: how many weights a model can drop without losing accuracy on held-out rows."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..linear.weights import AnyWeights, Weights
from ..model.examples import Batch
from ..model.fitted import FittedModel
from .label_weights import n_candidates

# A tenth of the weights is as accurate as all of them nearly everywhere, and often more: see
# docs/what_was_tried.md. Above 0.3, dense int8 weights take less space.
_USUAL, _LARGER, _SMALLER = 0.1, 0.3, (0.05, 0.03, 0.02, 0.01)
_SIGNIFICANT = 2.0  # standard errors
_MAX_UNSEEN = 0.1  # of the held-out rows: labels with a single row need more weights than they show
_MAX_LOSS = 0.002  # of precision and recall, that has to be ruled out for a smaller density
_TOP = 5
# If there are label weights: densities to try, and how much recall of candidates each may lose. A
# tenth is rarely worse than all weights, whatever a few rows say.
_MAX_CANDIDATE_LOSS = {0.2: 0.02, 0.1: 0.02, 0.05: 0.005, 0.03: 0.005}
_MAX_ROWS = 5000

Floats: TypeAlias = npt.NDArray[np.float64]


def choose_density(
    model: FittedModel, batch: Batch, label_weights: bool, n_jobs: int | None
) -> float:
    """Return the fraction of weights to keep, chosen on rows that the model was not trained on.

    If the model will have label weights, its trellises only have to find candidates: the smallest
    density that loses little of their recall. Otherwise:

    A tenth, unless P@1 or recall@5 is significantly lower than with all weights, or many of the
    rows have labels that no other row has; then 0.3 or, if that is worse too, 1. Less than a tenth
    if a loss above 0.2 points is unlikely, which takes thousands of rows to tell.
    """
    weights = model.weights
    assert isinstance(weights, Weights)
    if label_weights:
        return _enough_for_candidates(model, batch, weights, n_jobs)
    baseline = _precision_and_recall(model, batch, weights, n_jobs)

    def change(density: float) -> tuple[Floats, Floats]:
        """Return the mean changes of precision and recall, and their standard errors."""
        pruned = weights.prune(weights.magnitude_at(density))
        found = _precision_and_recall(model, batch, pruned, n_jobs) - baseline
        return found.mean(axis=1), found.std(axis=1) / np.sqrt(found.shape[1])

    usual = _USUAL if _unseen(model, batch) <= _MAX_UNSEEN else _LARGER
    for density in (usual, _LARGER):
        mean, error = change(density)
        if (mean >= -_SIGNIFICANT * error).all():
            break
    else:
        return 1.0
    if density == _USUAL:
        for smaller in _SMALLER:
            mean, error = change(smaller)
            if (mean - error < -_MAX_LOSS).any():
                break
            density = smaller
    return density


def _enough_for_candidates(
    model: FittedModel, batch: Batch, weights: Weights, n_jobs: int | None
) -> float:
    examples, rows = batch
    rows = rows[:: -(-len(rows) // _MAX_ROWS)]
    n_true = np.maximum(examples.indptr[rows + 1] - examples.indptr[rows], 1)
    X = examples.X[rows]

    def recall(part: AnyWeights) -> float:
        ids, _ = model.candidates(X, n_candidates(model), n_jobs, part)
        return float((examples.contains(rows, ids).sum(axis=1) / n_true).mean())

    of_all, density = recall(weights), 1.0
    magnitudes = weights.magnitudes_at(list(_MAX_CANDIDATE_LOSS))
    for (smaller, loss), magnitude in zip(_MAX_CANDIDATE_LOSS.items(), magnitudes, strict=True):
        if recall(weights.prune(magnitude)) < of_all - loss:
            break
        density = smaller
    return density


def prune(model: FittedModel, density: float) -> None:
    """Make a model predict with its largest weights only."""
    weights = model.weights
    assert isinstance(weights, Weights)
    model.frozen = weights.prune(weights.magnitude_at(density))
    model.density = density


def _unseen(model: FittedModel, batch: Batch) -> float:
    """Return the fraction of held-out rows whose labels occur in no training row."""
    examples, rows = batch
    held_out = examples.take(rows)
    assert model.counts is not None
    left = model.counts - np.bincount(held_out.labels, minlength=len(model.counts))
    known = left[held_out.labels] > 0
    row_of = np.repeat(np.arange(len(rows)), np.diff(held_out.indptr))
    return 1 - float((np.bincount(row_of, known, len(rows)) > 0).mean())


def _precision_and_recall(
    model: FittedModel, batch: Batch, weights: AnyWeights, n_jobs: int | None
) -> Floats:
    """Return precision at 1 and recall at 5 of every row, shape (2, n_rows)."""
    examples, rows = batch
    rows = rows[:: -(-len(rows) // _MAX_ROWS)]
    ids, _ = model.topk(examples.X[rows], _TOP, n_jobs, weights)
    hits = examples.contains(rows, ids).astype(np.float64)
    n_true = np.clip(examples.indptr[rows + 1] - examples.indptr[rows], 1, _TOP)
    return np.stack([hits[:, 0], hits.sum(axis=1) / n_true])
