"""The weights of the stages of an `EncoderClassifier`; this module does not need the engine."""

from __future__ import annotations

from itertools import product

import numpy as np

from ..core.arrays import Bools, Floats, Ints

_STEPS = 10  # of the weights between 0 and 1


def best_weights(log_probas: dict[str, Floats], hits: Bools, n_true: Ints) -> dict[str, float]:
    """Return the weights, which sum to 1, that rank the true labels of rows highest.

    The quality of a row is the sum of P@1 and of the share of at most 5 true labels among the first
    5. Of equally good weights, the most even ones are taken.

    Parameters
    ----------
    log_probas : dict of str to array of shape (n_rows, m)
        Log-probabilities of candidates, by stage.
    hits : bool array of shape (n_rows, m)
        Which candidates are true.
    n_true : int array of shape (n_rows,)
    """
    names, n = list(log_probas), len(log_probas)
    grid = [w for w in product(range(_STEPS + 1), repeat=n) if sum(w) == _STEPS]
    grid.sort(key=lambda weights: sum(w * w for w in weights))
    found: tuple[float, tuple[int, ...]] = (-1.0, grid[0])
    for weights in grid:
        total = sum(w / _STEPS * log_probas[name] for w, name in zip(weights, names, strict=True))
        first = np.argsort(-np.asarray(total), axis=1, kind="stable")[:, :5]
        right = np.take_along_axis(hits, first, 1)
        quality = float((right[:, 0] + right.sum(axis=1) / np.clip(n_true, 1, 5)).mean())
        if quality > found[0]:
            found = quality, weights
    return {name: w / _STEPS for name, w in zip(names, found[1], strict=True)}
