"""Explanations: what every feature of a row adds to the score of a label.

Every part has a linear score: an intercept plus a contribution per feature, its value times its
weight. The formula of the part maps the linear score to the score of the part. The scores of all
parts add up to the score of the label.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from ..core.arrays import Floats, Ints
from ..features.rows import Columns, Rows
from ..parts.base import PartExplanation
from .model import Model, below


def explain_row(
    model: Model, rows: Rows, labels: Ints, n_jobs: int | None
) -> list[PartExplanation]:
    """Explain the scores of some labels for a single row."""
    if len(rows) != 1:
        raise ValueError(f"X must have one row, got {len(rows)}")
    found = [_explain(model, rows, label) for label in labels.tolist()]
    if (limit := model.limit_of_others(rows, n_jobs)) is not None:
        for at in np.flatnonzero(~np.isin(labels, limit[0][0])):
            found[at] = _limited(found[at], limit[1][0])
    return found


def explain_label(model: Model, label: int) -> PartExplanation:
    """Return what every feature adds to the linear score of a label if its value is 1.

    The scores are those of a row without features.
    """
    every = _explain(model, _constant_row(model.columns, 1), label)
    none = _explain(model, _constant_row(model.columns, 0), label)
    return replace(
        none,
        features=every.features,
        contributions=every.contributions,
        parts=[
            replace(part, features=own.features, contributions=own.contributions)
            for part, own in zip(none.parts, every.parts, strict=True)
        ],
    )


def _constant_row(columns: Columns, value: float) -> Rows:
    """Return a row in which all features seen in training have this value; an empty row for 0."""
    n_inputs = columns.n_columns - columns.intercept
    n = n_inputs - (columns.used is not None) if value else 0
    values = np.full(n, value, np.float32)
    X = csr_array((values, np.arange(n), [0, n]), shape=(1, n_inputs))
    beside = None
    if columns.beside is not None:
        beside = Rows(np.full((1, columns.n_beside), value, np.float32), False, False)
    return Rows(X, columns.intercept, False, beside)


def _explain(model: Model, rows: Rows, label: int) -> PartExplanation:
    parts = [
        part.explain(rows, label).times(weight)
        for part, weight in zip(model.parts, model.weights, strict=True)
        if hasattr(part, "explain")
    ]
    features = rows.all_columns(0)
    order = np.argsort(features, kind="stable")
    total = np.zeros(len(features))
    for part in parts:
        total[order[np.searchsorted(features[order], part.features)]] += part.contributions
    return PartExplanation(
        "model",
        features,
        total,
        math.fsum(part.intercept for part in parts),
        math.fsum(part.score for part in parts),
        "score = sum of the scores of all parts",
        parts=parts,
    )


def _limited(explanation: PartExplanation, most: Floats) -> PartExplanation:
    """Limit the score of a label that is not a candidate."""
    score = float(below(np.array([explanation.score], np.float32), most)[0])
    if score == np.float32(explanation.score):
        return explanation
    formula = f"score = {score:.6g}, below all candidates, since no part proposes the label"
    return replace(explanation, score=score, formula=formula)
