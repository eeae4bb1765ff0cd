"""The best labels of the rows of a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import RequestError, quoted
from .models import ServedModel
from .rows import Rows

# Work up to this is done at once; more goes to a thread, so that others are not held up.
_QUICK_BYTES, _QUICK_K = 1 << 13, 100


@dataclass(frozen=True)
class Best:
    """The k best labels of every row and their scores or probabilities, best first."""

    labels: npt.NDArray[Any]
    scores: npt.NDArray[np.float32]


def is_quick(n_bytes: int, k: int) -> bool:
    """Return whether the scores of a request of this size are computed within a millisecond."""
    return n_bytes <= _QUICK_BYTES and k <= _QUICK_K


def best_by_score(model: ServedModel, rows: Rows, k: int) -> Best:
    """Return the k best labels of every row with their scores."""
    predictor = model.predictor(k)
    if rows.arrays is not None:
        return Best(*predictor(*rows.arrays))
    if rows.n_rows == 1:  # quicker than a list of one
        labels, scores = predictor(rows.X[0])
        return Best(labels[None], scores[None])
    return Best(*predictor(rows.X))


def best_by_probability(model: ServedModel, rows: Rows, k: int) -> Best:
    """Return the k best labels of every row with their probabilities."""
    if not model.has_probabilities:
        raise RequestError(
            422,
            f"model {quoted(model.name)} has no probabilities, since its loss is "
            f"{model.estimator.model_.loss.name}: leave out proba",
        )
    return Best(*model.estimator.predict_topk(rows.X, k, proba=True))


def json_labels(labels: npt.NDArray[Any]) -> list[Any]:
    """Return labels as JSON values: strings and numbers as they are, others as text."""
    plain: list[Any] = labels.tolist()
    if labels.dtype.kind in "iuU":
        return plain
    return [[_json_label(label) for label in row] for row in plain]


def _json_label(label: Any) -> Any:
    if isinstance(label, float) and not np.isfinite(label):
        return str(label)
    return label if isinstance(label, str | int | float) else str(label)
