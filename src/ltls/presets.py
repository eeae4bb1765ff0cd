"""Estimators configured as in published work."""

from __future__ import annotations

from typing import Any

from .estimators.classifier import LTLSClassifier
from .features.numbers import Numbers
from .parts.trellises import Trellises

__all__ = ["paper"]


def paper(**changes: Any) -> LTLSClassifier:
    """Return an estimator that follows the paper (sections 4 to 6) and its authors' code.

    The paper is Jasinska and Karampatziakis, Log-time and Log-space Extreme Classification, 2016.
    The model is a trellis of width 2 with a path for every label, and no other part: separation
    ranking loss, paths assigned online by ranking, plain SGD with a constant learning rate of 1,
    weights averaged over all examples, no intercept. Rows are not shuffled; shuffle them yourself.

    Parameters
    ----------
    **changes
        Settings of the trellises, or parameters of `LTLSClassifier`. For each data set, the paper
        chose `epochs` (4 for Bibtex), `l1` (2.3 for LSHTC1, 1.75 for Dmoz) and `ranking_multiplier`
        (3 for rcv1-regions and Eur-Lex, 4 for LSHTCwiki).

    Examples
    --------
    >>> from ltls import presets
    >>> presets.paper(epochs=4).trellises.loss
    'separation'
    """
    trellises: dict[str, Any] = {
        "width": 2,
        "n_trellises": 1,
        "epochs": 5,
        "loss": "separation",
        "assignment": "ranking",
        "optimizer": "sgd",
        "learning_rate": 1.0,
        "average": True,
        "shuffle": False,
        "density": 1.0,
        "dtype": "float32",
    }
    names = {name for name, *_ in Trellises.declared()}
    trellises |= {name: changes.pop(name) for name in list(changes) if name in names}
    settings: dict[str, Any] = {
        "features": Numbers(normalize=False, standardize=False, fit_intercept=False),
        "trellises": Trellises(**trellises),
        "views": False,
        "label_weights": False,
        "prototypes": False,
        "neighbours": False,
        "calibration": False,
        "memory": False,
        "validation_fraction": 0.0,
    }
    return LTLSClassifier(**{**settings, **changes})
