"""The paths of a prediction through a trellis, for the page to draw."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..estimators.classifier import LTLSClassifier
from ..estimators.explain import Part
from .messages import RequestError

MAX_PATHS = 5
_MAX_EDGES = 2000  # as `ltls.plot` draws


def paths(estimator: LTLSClassifier, X: Any, labels: Any, which: int) -> dict[str, Any]:
    """Return one trellis of a model and the paths of labels through it, as JSON values.

    Parameters
    ----------
    estimator : LTLSClassifier
    X : one row, as the estimator takes it
    labels : array
        The best labels of the row, best first.
    which : int
        The trellis: each gives a label another path. Those of one view come after the other.
    """
    parts = [part for part in estimator.model_.trellises() for _ in part.codebooks]
    if which >= len(parts):
        raise RequestError(422, f"trellis must be at most {len(parts) - 1}, got {which}")
    trellis = parts[which].trellis
    if trellis.n_edges > _MAX_EDGES:
        raise RequestError(
            422, f"a trellis of {trellis.n_edges} edges is too large to draw: leave out trellis"
        )
    (explained,) = estimator.explain(X, labels[:MAX_PATHS])
    found = {each.label: list(_trellises(each.parts))[which] for each in explained}
    edges = np.asarray(trellis.edges).reshape(-1, 2)
    n_inner = trellis.n_slices * trellis.width
    return {
        "trellis": which,
        "trellises": len(parts),
        "clusters": parts[which].shares_paths,
        "width": trellis.width,
        "slices": trellis.n_slices,
        "auxiliary": max(int(edges.max(initial=0)) - 1 - n_inner, 0),
        "edges": edges.tolist(),
        "paths": [_drawn(found[label]) for label in labels[:MAX_PATHS]],
    }


def _trellises(parts: list[Part]) -> Iterator[Part]:
    """Yield what the trellises say, however deep they are in views."""
    for part in parts:
        if part.path is not None:
            yield part
        yield from _trellises(part.parts)


def _drawn(part: Part) -> dict[str, Any]:
    return {
        "path": part.path,
        "vertices": [0, *(edge.head for edge in part.edges)],
        "scores": [round(edge.score, 4) for edge in part.edges],
    }
