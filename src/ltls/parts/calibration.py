"""Calibration: from scores to probabilities, and to the labels that are predicted.

One map for all labels is fitted on rows that the model was not trained on. With several labels per
row, the probability of a label is a function of its score. With one label per row, it is a function
of the log-softmax of the scaled scores, normalized again. The function is increasing: a higher
score means a higher probability. A threshold decides which of several labels are predicted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..core.arrays import Bools, Doubles, Floats, Ints, Tensors
from ..core.declarations import Array, Described
from ..core.settings import Settings, settings

_SAMPLED = 200  # candidates per row that are all used; of more, the best half of this number is
_SAMPLING = 17  # of the other candidates, one in so many is used
_MAX_SCALE = 100.0  # or its inverse
_MIN_ISOTONIC = 400  # true labels for isotonic regression; fewer are fitted by a sigmoid
_MIN_PROBABILITY, _MIN_KNOT = 1e-6, 0.02
_SIGMOID_KNOTS = 33


@settings
class Calibration(Settings):
    """Calibration of probabilities on held-out rows; it has no settings."""


@dataclass(frozen=True, eq=False)
class ScoreCurve:
    """An increasing function from scores to probabilities, linear between knots.

    Below the first knot, the probability falls as exp(score); above the last one, its distance to 1
    falls as exp(−score).

    Parameters
    ----------
    scores, probabilities : float32 arrays of the same length
        The knots: scores are increasing; probabilities are non-decreasing and between 0 and 1.
    """

    scores: Floats
    probabilities: Floats

    def __call__(self, scores: Floats) -> Floats:
        """Return the probabilities of labels with these scores."""
        found: Floats = np.interp(scores, self.scores, self.probabilities).astype(np.float32)
        below, above = self.scores[0] - scores, scores - self.scores[-1]
        found *= np.exp(-np.maximum(below, 0))
        found -= (1 - found) * np.expm1(-np.maximum(above, 0))
        return found


@dataclass(frozen=True, eq=False)
class Calibrator:
    """Turns the scores of candidate labels into probabilities.

    Parameters
    ----------
    multilabel : bool
        Whether any number of labels may be true, independently of each other.
    scale : float
        Positive factor of the scores. A curve for several labels per row does not use it.
    curve : ScoreCurve or None
        None for a plain softmax of the scaled scores or, if labels are independent, their exp.
    missed : float
        Mean number of true labels per row that are not among the candidates.
    threshold : float or None
        For several labels per row: labels that score at least this much are predicted.
    """

    multilabel: bool
    scale: float = 1.0
    curve: ScoreCurve | None = None
    missed: float = 0.0
    threshold: float | None = None

    def __call__(self, scores: Floats) -> Floats:
        """Return the probabilities of labels, given that no others are true; 0 for −inf."""
        if self.multilabel:
            if self.curve is not None:
                return self.curve(scores)
            found: Floats = np.exp(np.minimum(np.float32(self.scale) * scores, 0))
            return found
        logarithms = self.log_softmax(scores)
        weights = np.exp(logarithms) if self.curve is None else self.curve(logarithms)
        probabilities: Floats = weights / weights.sum(axis=1, keepdims=True)
        return probabilities

    def of_candidates(self, scores: Floats) -> Floats:
        """Return the probabilities of candidates, among which the true label may be missing."""
        found = self(scores)
        return found if self.multilabel else found * np.float32(1 - self.missed)

    def of_others(self, n_others: Ints) -> Floats:
        """Return the probability of each of so many labels that are not candidates of a row."""
        found: Floats = (self.missed / np.maximum(n_others, 1)).astype(np.float32)
        return found

    def log_softmax(self, scores: Floats) -> Floats:
        """Return the logarithm of the softmax of the scaled scores."""
        highest = np.maximum(scores.max(axis=1, keepdims=True), np.finfo(np.float32).min)
        exponents = np.float32(self.scale) * (scores - highest)
        total = np.exp(exponents).sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore"):
            logarithms: Floats = exponents - np.log(total)
        return logarithms

    @classmethod
    def fit(cls, scores: Floats, hits: Bools, multilabel: bool) -> Calibrator | None:
        """Return the calibration of candidates with these scores, None if they are uninformative.

        `hits` marks the candidates that are true; entries with score −inf are not candidates.
        """
        hits = hits & (scores > -np.inf)
        n_true = int(hits.sum())
        if not n_true or n_true == hits.size:
            return None
        if multilabel:
            fitted = _isotonic if n_true >= _MIN_ISOTONIC else _sigmoid
            return cls(True, 1.0, fitted(*_pairs(scores, hits), _MIN_PROBABILITY))
        scaled = cls(False, _scale(scores, hits))
        if n_true < _MIN_ISOTONIC:
            return scaled
        # Below the first knot, probabilities stay proportional to the softmax, since those of very
        # many labels add up.
        pairs = _pairs(scaled.log_softmax(scores), hits)
        return cls(False, scaled.scale, _isotonic(*pairs, _MIN_KNOT))

    # Files

    TENSORS: ClassVar[dict[str, Array]] = {
        "scores": Array("f4", ("n_knots",), increasing="all", group="curve"),
        "probabilities": Array("f4", ("n_knots",), low=1e-12, high=1 - 1e-7, group="curve"),
    }

    def state(self) -> tuple[dict[str, Any], Tensors]:
        """Return a JSON description and tensors."""
        described = {
            "multilabel": self.multilabel,
            "scale": self.scale,
            "missed": self.missed,
            "threshold": self.threshold,
        }
        curve = self.curve
        if curve is None:
            return described, {}
        return described, {"scores": curve.scores, "probabilities": curve.probabilities}

    @classmethod
    def from_state(cls, section: Described, multilabel: bool) -> Calibrator:
        """Restore a calibration from its `state`, of a model of one or several labels per row."""
        tensors, curve = section.tensors(cls.TENSORS, {}), None
        if tensors:
            curve = ScoreCurve(*(np.array(tensors[name]) for name in ("scores", "probabilities")))
            if not len(curve.scores) or (np.diff(curve.probabilities) < 0).any():
                raise ValueError("the probabilities of a calibration must not decrease")
        threshold = section.get("threshold", "a number or null", _is_number_or_null)
        if multilabel and threshold is None:
            raise ValueError("a model of several labels per row needs a threshold")
        independent = section.flag("multilabel")
        if independent and not multilabel:
            raise ValueError("labels of a model of one label per row are not independent")
        return cls(
            independent,
            section.number("scale", 1e-30, 1e30),
            curve,
            section.number("missed", 0, 1e9),
            None if threshold is None else section.number("threshold"),
        )


def _is_number_or_null(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def best_threshold(scores: Floats, hits: Bools, n_true: int) -> float:
    """Return the score threshold with the best micro-averaged F1.

    Parameters
    ----------
    scores, hits : arrays of the same shape
        Scores of candidates, and whether they are correct.
    n_true : int
        The number of true labels, found or not.
    """
    finite = np.isfinite(scores)
    scores, hits = scores[finite], hits[finite]
    if not len(scores):
        return 0.0
    order = np.argsort(-scores, kind="stable")
    ranked, right = scores[order], np.cumsum(hits[order])
    f1 = 2 * right / (np.arange(1, len(order) + 1) + n_true)
    f1[:-1][ranked[:-1] == ranked[1:]] = -1  # a threshold cannot separate equal scores
    return float(ranked[np.argmax(f1)])


def _scale(scores: Floats, hits: Bools) -> float:
    """Return the scale with the highest likelihood of the true labels.

    A weak prior, exp(−scale), keeps it small if all labels with the highest scores are true.
    """
    from scipy.optimize import minimize_scalar  # slow to import, and only needed here

    known = hits.any(axis=1)
    exponents = scores[known]
    exponents = exponents - exponents.max(axis=1, keepdims=True)
    first = hits[known].argmax(axis=1)
    true = exponents[np.arange(len(exponents)), first]

    def loss(log_scale: float) -> float:
        scale = np.float32(np.exp(log_scale))
        scaled = scale * exponents  # the largest of a row is 0
        total = np.exp(scaled, out=scaled).sum(axis=1)
        return float((np.log(total) - scale * true).sum() + scale)

    width = np.log(_MAX_SCALE)
    found = minimize_scalar(loss, bounds=(-width, width), options={"xatol": 0.01})
    return float(np.exp(found.x))


def _pairs(scores: Floats, hits: Bools) -> tuple[Doubles, Bools, Doubles]:
    """Return scores of labels, whether they are true, and weights.

    These are the best labels of every row, and a sample of the others with larger weights.
    """
    weights = np.ones(scores.shape, np.uint8)
    if scores.shape[1] > _SAMPLED:
        order = np.argpartition(-scores, _SAMPLED // 2, axis=1)
        others = order[:, _SAMPLED // 2 :]
        sampled = np.zeros(others.size, np.uint8)
        sampled[::_SAMPLING] = _SAMPLING
        np.put_along_axis(weights, others, sampled.reshape(others.shape), axis=1)
    used = (weights > 0) & (scores > -np.inf)
    return scores[used].astype(np.float64), hits[used], weights[used].astype(np.float64)


def _isotonic(scores: Doubles, hits: Bools, weights: Doubles, lowest: float) -> ScoreCurve:
    """Return an isotonic regression, interpolated between the centres of its steps.

    Without interpolation, labels with different scores would be equally probable. Steps with a
    probability below `lowest` are left out, except for the last one: if scores say little, it
    may be the only one.
    """
    from sklearn.isotonic import IsotonicRegression  # slow to import, and only needed here

    fitted = IsotonicRegression().fit(scores, hits, weights).predict(scores)
    values, step = np.unique(fitted, return_inverse=True)
    centres = np.bincount(step, weights * scores) / np.bincount(step, weights)
    first = int(np.searchsorted(values, lowest)) - (lowest == _MIN_PROBABILITY)
    first = min(max(first, 0), len(values) - 1)
    return _curve(centres[first:], values[first:])


def _sigmoid(scores: Doubles, hits: Bools, weights: Doubles, lowest: float) -> ScoreCurve:
    """Return Platt's sigmoid, interpolated between evenly spaced scores."""
    knots = np.linspace(scores.min(), scores.max(), _SIGMOID_KNOTS)
    if knots[0] == knots[-1] or hits.all() or not hits.any():
        return _curve(knots[:1], np.array([np.average(hits, weights=weights)]))
    from sklearn.linear_model import LogisticRegression  # slow to import, and only needed here

    regression = LogisticRegression(C=1e6).fit(scores[:, None], hits, weights)
    values = regression.predict_proba(knots[:, None])[:, 1]
    return _curve(knots, np.sort(values))


def _curve(scores: Doubles, values: Doubles) -> ScoreCurve:
    """Return a curve through points; scores and values must be non-decreasing."""
    at = scores.astype(np.float32)
    probabilities = np.clip(values, _MIN_PROBABILITY, 1 - _MIN_PROBABILITY).astype(np.float32)
    first = np.concatenate([[True], np.diff(at) > 0])
    return ScoreCurve(at[first], np.maximum.accumulate(probabilities[first]))
