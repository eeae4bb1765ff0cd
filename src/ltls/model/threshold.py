"""The score threshold of multi-label prediction."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def best_threshold(
    scores: npt.NDArray[np.float32], hits: npt.NDArray[np.bool_], n_true: int
) -> float:
    """Return the threshold with the best micro-averaged F1.

    Parameters
    ----------
    scores, hits : arrays of the same shape
        Scores of candidate labels, and whether they are correct.
    n_true : int
        The number of true labels, found or not.
    """
    order = np.argsort(-scores, axis=None, kind="stable")
    ranked, right = scores.ravel()[order], np.cumsum(hits.ravel()[order])
    f1 = 2 * right / (np.arange(1, len(order) + 1) + n_true)
    f1[:-1][ranked[:-1] == ranked[1:]] = -1  # a threshold cannot separate equal scores
    return float(ranked[np.argmax(f1)])
