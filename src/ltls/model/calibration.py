"""Calibration: from scores to probabilities that are right as often as they say.

One map for all labels, fitted on rows that the model was not trained on. Several labels per row:
the probability of a label is a function of its score. One label per row: a softmax of the scaled
scores, then a function of the logarithm of each probability, and the results are normalized. The
function increases, so that a higher score is a higher probability.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class ScoreCurve:
    """An increasing function from scores to probabilities, linear between knots.

    Below the first knot it falls as exp(score), above the last one it approaches 1 in the same way.

    Parameters
    ----------
    scores, probabilities : float32 arrays of the same length
        The knots: scores increase, probabilities do not decrease and are above 0 and below 1.
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
class Calibration:
    """Turns the scores of labels into probabilities.

    Parameters
    ----------
    multilabel : bool
    scale : float
        What the scores of one label per row are multiplied by; above 0.
    curve : ScoreCurve or None
        None if a softmax of the scaled scores is all. Several labels per row always have one.
    """

    multilabel: bool
    scale: float = 1.0
    curve: ScoreCurve | None = None

    def __call__(self, scores: Floats) -> Floats:
        """Return the probabilities of the labels of every row."""
        if self.multilabel:
            assert self.curve is not None
            return self.curve(scores)
        logarithms = self.log_softmax(scores)
        weights = np.exp(logarithms) if self.curve is None else self.curve(logarithms)
        probabilities: Floats = weights / weights.sum(axis=1, keepdims=True)
        return probabilities

    def log_softmax(self, scores: Floats) -> Floats:
        """Return the logarithm of the softmax of the scaled scores."""
        exponents = np.float32(self.scale) * (scores - scores.max(axis=1, keepdims=True))
        logarithms: Floats = exponents - np.log(np.exp(exponents).sum(axis=1, keepdims=True))
        return logarithms
