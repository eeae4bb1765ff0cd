"""How much to prefer rare labels: given, or chosen on held-out rows."""

from __future__ import annotations

import numpy as np

from ..model.examples import Batch
from ..model.fitted import FittedModel
from ..model.propensity import propensities_of
from .config import TrainConfig

_STRENGTHS = (0.1, 0.2, 0.4, 0.8)
_TOP = 5


def given_propensity(config: TrainConfig) -> float:
    """Return the strength that is given; 0 if it is to be chosen."""
    return 0.0 if isinstance(config.propensity, str) else float(config.propensity)


def choose_propensity(model: FittedModel, batch: Batch, n_jobs: int | None) -> None:
    """Choose the strength that finds the most true labels of held-out rows, weighted by rarity.

    That is propensity-scored precision at 5. A strength that loses more than a standard error of
    P@1 is not considered.
    """
    examples, rows = batch
    X = examples.X[rows]
    assert model.counts is not None
    rarity = 1 / propensities_of(model.counts, max(model.n_rows, 1))

    def measures() -> tuple[float, np.ndarray[tuple[int], np.dtype[np.float64]]]:
        """Return the rarity of the true labels that are found, and P@1 of every row."""
        ids, _ = model.topk(X, _TOP, n_jobs)
        hits = examples.contains(rows, ids)
        return float((hits * rarity[ids]).sum()), hits[:, 0].astype(float)

    model.propensity = 0.0
    most, precision = measures()
    chosen = 0.0
    for strength in _STRENGTHS:
        model.propensity = strength
        found, other = measures()
        change = other - precision
        if change.mean() < -change.std() / np.sqrt(len(change)):
            break
        if found > most:
            most, chosen = found, strength
    model.propensity = chosen
