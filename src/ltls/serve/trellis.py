"""The paths of a prediction through a trellis, for the page to draw."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..estimators.classifier import LTLSClassifier
from .errors import RequestError

MAX_PATHS = 5
MAX_EDGES = 2000  # as `ltls.plot` draws


def paths(estimator: LTLSClassifier, X: Any, labels: list[Any], which: int = 0) -> dict[str, Any]:
    """Return one trellis of a model and the paths of labels through it, as JSON values.

    Parameters
    ----------
    estimator : LTLSClassifier
    X : one row, as the estimator takes it
    labels : list
        The best labels of the row, best first.
    which : int, default=0
        The trellis: each gives a label another path.
    """
    trellis, model = estimator.trellis_, estimator.model_
    n_trellises = len(estimator.codebooks_)
    if which >= n_trellises:
        raise RequestError(422, f"trellis must be at most {n_trellises - 1}, got {which}")
    if trellis.n_edges > MAX_EDGES:
        raise RequestError(
            422, f"a trellis of {trellis.n_edges} edges is too large to draw: leave out trellis"
        )
    scores = estimator.edge_scores(X)[0].reshape(n_trellises, trellis.n_edges)[which]
    ids = [model.labels.id(label) for label in labels[:MAX_PATHS]]
    edges = np.asarray(trellis.edges).reshape(-1, 2)
    found = []
    for path in estimator.codebooks_[which].path_of(np.array(ids, np.int64)).tolist():
        used = np.asarray(trellis.path_edges(path), np.int64)
        found.append(
            {
                "path": path,
                "vertices": [0, *edges[used, 1].tolist()] if len(used) else [0],
                "scores": np.round(scores[used].astype(float), 4).tolist(),
            }
        )
    n_inner = trellis.n_slices * trellis.width
    return {
        "trellis": which,
        "trellises": n_trellises,
        "width": trellis.width,
        "slices": trellis.n_slices,
        "auxiliary": max(int(edges.max(initial=0)) - 1 - n_inner, 0),
        "edges": edges.tolist(),
        "paths": found,
    }
