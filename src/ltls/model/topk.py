"""Top-k search: the engine's search, widened for rows with too few labels, then reranking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ..core.arrays import threads
from ..features.rows import engine_features
from ..linear.weights import AnyWeights
from .decoder import Decoder

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float32]

ROWS_PER_CALL = 4096  # of the engine: Ctrl-C is handled between calls


class Reranker(Protocol):
    """A part of a model that changes the scores of candidates."""

    @property
    def n_candidates(self) -> int:
        """How many candidates it needs, at least."""

    @property
    def for_candidates_only(self) -> bool:
        """Whether other labels must not rank above the candidates."""

    def rerank(self, X: Any, ids: Ints, scores: Floats, n_jobs: int | None) -> None:
        """Change the scores of the candidates of every row and sort them, in place."""


class TopK:
    """The k best labels of rows, for a model as it is now.

    Parameters
    ----------
    weights : Weights or PrunedWeights
    decoder : Decoder
    rerankers : sequence of Reranker
        Applied one after the other.
    k : int
        Capped at the number of labels.
    """

    def __init__(
        self, weights: AnyWeights, decoder: Decoder, rerankers: Sequence[Reranker], k: int
    ) -> None:
        self.weights, self.decoder, self.rerankers = weights, decoder, rerankers
        self.k = min(k, decoder.n_labels)
        needed = max((each.n_candidates for each in rerankers), default=0)
        self.n_candidates = min(max(k, needed), decoder.n_labels)
        limited = any(each.for_candidates_only for each in rerankers)
        self.n_ranked_first = min(needed, decoder.n_labels) if limited else self.n_candidates
        self.engine = decoder.predictor(weights, self.n_candidates)

    def __call__(self, X: Any, n_jobs: int | None) -> tuple[Ints, Floats]:
        """Return the ids and scores of the k best labels of every row, best first."""
        shape = (X.shape[0], self.n_candidates)
        ids, scores = np.full(shape, -1, np.int64), np.empty(shape, np.float32)
        if not self.decoder.is_exhaustive(self.n_candidates):
            features = engine_features(X, self.weights.intercept, self.weights.unit_length)
            for first in range(0, len(ids), ROWS_PER_CALL):
                some = slice(first, first + ROWS_PER_CALL)
                self.engine.predict(features, first, ids[some], scores[some], threads(n_jobs))
        self.complete(X, ids, scores, n_jobs)
        if self.k < self.n_candidates:
            ids, scores = (np.ascontiguousarray(each[:, : self.k]) for each in (ids, scores))
        return ids, scores

    def complete(self, X: Any, ids: Ints, scores: Floats, n_jobs: int | None) -> None:
        """Search wider for rows with fewer than k labels and rerank all rows, in place."""
        lacking = np.flatnonzero(ids[:, -1] < 0)
        if len(lacking):
            self._widen(X, lacking, ids, scores, n_jobs)
        first = slice(self.n_ranked_first)
        best = self._reranked(X, ids[:, first], scores[:, first], n_jobs)
        ids[:, first], scores[:, first] = best
        if self.n_ranked_first < self.n_candidates:
            rest = slice(self.n_ranked_first, None)
            ids[:, rest], others = self._reranked(X, ids[:, rest], scores[:, rest], n_jobs)
            scores[:, rest] = np.minimum(others, best[1][:, -1:])

    def _reranked(
        self, X: Any, ids: Ints, scores: Floats, n_jobs: int | None
    ) -> tuple[Ints, Floats]:
        ids, scores = np.ascontiguousarray(ids), np.ascontiguousarray(scores)
        for reranker in self.rerankers:
            reranker.rerank(X, ids, scores, n_jobs)
        return ids, scores

    def _widen(self, X: Any, lacking: Ints, ids: Ints, scores: Floats, n_jobs: int | None) -> None:
        rest = X if len(lacking) == len(ids) else X[lacking]
        features = engine_features(rest, self.weights.intercept, self.weights.unit_length)
        for first in range(0, len(lacking), ROWS_PER_CALL):
            rows = lacking[first : first + ROWS_PER_CALL]
            h = self.weights.edge_scores(features, first, len(rows), n_jobs)
            ids[rows], scores[rows] = self.decoder.topk(h, self.n_candidates)
