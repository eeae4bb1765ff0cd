"""The embedding reranker: inner products of row and label vectors.

A label's score is the inner product of its vector and the row's, plus a bias. The vectors take
n_features × dim and n_labels × dim numbers, so the model is no longer logarithmic in size, but a
training step and a prediction still are: only the trellises' candidates are scored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..core import _engine
from ..core.arrays import threads
from ..features.rows import engine_features
from ..linear.weights import Weights

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float32]

ROWS_PER_CALL = 4096  # of the engine: Ctrl-C is handled between calls


@dataclass(frozen=True)
class Embedding:
    """A reranker of the trellises' candidates.

    Parameters
    ----------
    features : Weights
        Maps a row of X to its vector, with one more column for the bias.
    labels : array of shape (n_labels, padded(dim + 1))
        A vector and a bias for every label; float32, or float16 in a file.
    dim : int
        The length of the vectors.
    weight : float
        Weight of its scores in the sum with the trellises' scores.
    """

    features: Weights
    labels: npt.NDArray[Any]
    dim: int
    weight: float = 0.0

    def engine_features(self, X: Any) -> _engine.Features:
        """Pass rows to the engine, for `row_vectors`."""
        return engine_features(X, False, self.features.unit_length)

    def row_vectors(
        self, features: _engine.Features, first: int, count: int, n_jobs: int | None
    ) -> Floats:
        """Return the vectors of `count` rows from `first` on, with 1 in the column of the bias."""
        vectors = self.features.edge_scores(features, first, count, n_jobs)
        vectors[:, self.dim] = 1
        return vectors

    @property
    def n_candidates(self) -> int:
        """How many candidates it reranks, at least."""
        return 8

    @property
    def for_candidates_only(self) -> bool:
        """Its scores are sensible for all labels."""
        return False

    def rerank(self, X: Any, ids: Ints, scores: Floats, n_jobs: int | None) -> None:
        """Add the embedding's scores to those of the candidates and sort them, in place."""
        features = self.engine_features(X)
        for first in range(0, len(ids), ROWS_PER_CALL):
            some = slice(first, first + ROWS_PER_CALL)
            vectors = self.row_vectors(features, first, len(ids[some]), n_jobs)
            _engine.rerank(
                vectors,
                self.labels,
                self.dim,
                self.weight,
                ids[some],
                scores[some],
                threads(n_jobs),
            )

    def all_scores(self, vectors: Floats) -> Floats:
        """Return the weighted scores of all labels, shape (n_rows, n_labels)."""
        scores: Floats = vectors @ self.labels.T
        return np.float32(self.weight) * scores

    def astype(self, dtype: str) -> Embedding:
        """Return the embedding rounded to float32, float16 or int8.

        Label vectors are at least float16, and float32 if they are too large for that.
        """
        labels = self.labels
        if dtype != "float32" and np.abs(labels).max(initial=0) <= np.finfo(np.float16).max:
            labels = labels.astype(np.float16)
        return replace(self, features=self.features.astype(dtype), labels=labels)
