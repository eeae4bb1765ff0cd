"""Estimators with the settings of a paper."""

from __future__ import annotations

from typing import Any

from .classifier import LTLSClassifier


def paper(**changes: Any) -> LTLSClassifier:
    """Return an estimator that follows sections 4 to 6 of the paper and its authors' code.

    A path for every label and no label weights, separation ranking loss, online assignment by
    ranking, width 2, plain SGD with a constant learning rate of 1, weights averaged over all
    examples, no intercept, and rows in their given order, which should be shuffled beforehand.

    Parameters
    ----------
    **changes
        Other parameters of `LTLSClassifier`: the paper chose `epochs` (4 for Bibtex), `l1` (2.3 for
        LSHTC1, 1.75 for Dmoz) and `ranking_multiplier` (3 for rcv1-regions and Eur-Lex, 4 for
        LSHTCwiki) for each data set.

    Examples
    --------
    >>> from ltls import presets
    >>> presets.paper(epochs=4).loss
    'separation'
    """
    settings: dict[str, Any] = {
        "width": 2,
        "n_trellises": 1,
        "bucket_size": 1,
        "label_weights": False,
        "calibrate": False,
        "density": 1.0,
        "epochs": 5,
        "loss": "separation",
        "assignment": "ranking",
        "optimizer": "sgd",
        "learning_rate": 1.0,
        "average": True,
        "shuffle": False,
        "normalize": False,
        "standardize": False,
        "fit_intercept": False,
        "validation_fraction": 0.0,
        "replay_size": 0,
    }
    return LTLSClassifier(**{**settings, **changes})
