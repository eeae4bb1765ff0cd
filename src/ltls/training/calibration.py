"""Fitting of the calibration, on rows that a model was not trained on."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from ..model.calibration import Calibration, ScoreCurve
from ..model.examples import Batch
from ..model.fitted import FittedModel

Floats: TypeAlias = npt.NDArray[np.float32]
Doubles: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]

_MAX_CELLS = 1 << 22  # rows × labels of several per row: beyond it, only candidates are scored
_CANDIDATES = 100
_SAMPLING = 17  # one in so many of the labels beyond the candidates is used
_MAX_SCALE = 100.0  # or its inverse, relative to the mean over trellises
_MIN_ISOTONIC = 400  # true labels: fewer are fitted by a function of fewer parameters
_MIN_PROBABILITY, _MIN_KNOT = 1e-6, 0.02
_SIGMOID_KNOTS = 33


def calibrate(model: FittedModel, batch: Batch, n_jobs: int | None) -> None:
    """Set the calibration of a model, given rows that it was not trained on."""
    scores, hits = _scored(model, batch, n_jobs)
    n_true = int(hits.sum())
    if not n_true or hits.all():
        return
    calibration = Calibration(model.multilabel)
    if not model.multilabel:
        usual = 1 / len(model.codebooks) if model.label_weights is None else 1.0
        calibration = Calibration(False, _scale(scores, hits, usual))
        scores = calibration.log_softmax(scores)
    curve = None
    if n_true >= _MIN_ISOTONIC:
        # Below, the probabilities of one label per row stay proportional to the softmax: those of
        # very many labels add up.
        lowest = _MIN_PROBABILITY if model.multilabel else _MIN_KNOT
        curve = _isotonic(*_pairs(scores, hits), lowest)
    elif model.multilabel:
        curve = _sigmoid(*_pairs(scores, hits))
    model.calibration = Calibration(model.multilabel, calibration.scale, curve)


def usual_calibration(model: FittedModel) -> Calibration | None:
    """Return the calibration of a model that there were too few rows for.

    Of several trellises it is the softmax of their mean score, whose most probable label is the
    best one; the mean of their probabilities may have another.
    """
    several = len(model.codebooks) > 1 and not model.multilabel
    alone = model.label_weights is None and model.embedding is None
    if not (several and alone and model.loss.normalized):
        return None
    return Calibration(False, 1 / len(model.codebooks))


def _scored(model: FittedModel, batch: Batch, n_jobs: int | None) -> tuple[Floats, Bools]:
    """Return the scores of all labels, or of the best ones, and which of them are true.

    If a row has one label, the others have next to no probability.
    """
    examples, rows = batch
    X, n_labels = examples.X[rows], len(model.labels)
    if model.multilabel and len(rows) * n_labels <= _MAX_CELLS:
        scores = model.calibrated_scores(X, n_jobs)
        ids = np.broadcast_to(np.arange(n_labels), scores.shape)
    else:
        ids, scores = model.best_scores(X, _CANDIDATES, n_jobs)
    return scores, examples.contains(rows, ids)


def _scale(scores: Floats, hits: Bools, usual: float) -> float:
    """Return the scale with the highest likelihood of the true labels."""
    known = hits.any(axis=1)
    exponents = scores[known]
    exponents = exponents - exponents.max(axis=1, keepdims=True)
    true = exponents[hits[known]]

    def loss(log_scale: float) -> float:
        scale = np.float32(np.exp(log_scale))
        return float((logsumexp(scale * exponents, axis=1) - scale * true).mean())

    middle, width = np.log(usual), np.log(_MAX_SCALE)
    options = {"xatol": 0.01}
    bounds = (middle - width, middle + width)
    return float(np.exp(minimize_scalar(loss, bounds=bounds, options=options).x))


def _pairs(scores: Floats, hits: Bools) -> tuple[Doubles, Bools, Doubles]:
    """Return scores of labels, whether they are true, and weights.

    These are the best labels of every row, and a sample of all others, which count for more.
    """
    if scores.shape[1] <= 2 * _CANDIDATES:
        return scores.ravel().astype(np.float64), hits.ravel(), np.ones(scores.size)
    order = np.argpartition(-scores, _CANDIDATES, axis=1)
    best, others = order[:, :_CANDIDATES], order[:, _CANDIDATES:]
    parts = []
    for ids, every in ((best, 1), (others, _SAMPLING)):
        part = [np.take_along_axis(each, ids, axis=1).ravel()[::every] for each in (scores, hits)]
        parts.append((*part, np.full(len(part[0]), every, np.float64)))
    flat, right, weights = (np.concatenate(each) for each in zip(*parts, strict=True))
    return flat.astype(np.float64), right, weights


def _isotonic(scores: Doubles, hits: Bools, weights: Doubles, lowest: float) -> ScoreCurve:
    """Return an isotonic regression, interpolated between the centres of its steps.

    Steps would make labels with different scores equally probable. Those below a probability
    `lowest` are left out, but for the last one.
    """
    fitted = IsotonicRegression().fit(scores, hits, weights).predict(scores)
    values, step = np.unique(fitted, return_inverse=True)
    centres = np.bincount(step, weights * scores) / np.bincount(step, weights)
    first = max(int(np.searchsorted(values, lowest)) - (lowest == _MIN_PROBABILITY), 0)
    return _curve(centres[first:], values[first:])


def _sigmoid(scores: Doubles, hits: Bools, weights: Doubles) -> ScoreCurve:
    """Return Platt's sigmoid, sampled."""
    regression = LogisticRegression(C=np.inf).fit(scores[:, None], hits, weights)
    knots = np.linspace(scores.min(), scores.max(), _SIGMOID_KNOTS)
    return _curve(knots, regression.predict_proba(knots[:, None])[:, 1])


def _curve(scores: Doubles, values: Doubles) -> ScoreCurve:
    """Return a curve through points; both must not decrease."""
    at = scores.astype(np.float32)
    probabilities = np.clip(values, _MIN_PROBABILITY, 1 - _MIN_PROBABILITY).astype(np.float32)
    first = np.concatenate([[True], np.diff(at) > 0])
    return ScoreCurve(at[first], np.maximum.accumulate(probabilities[first]))
