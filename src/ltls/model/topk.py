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
from .label_weights import LabelWeights

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
        """Whether labels beyond these candidates have to stay below them."""

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
        # Finds the candidates that all other labels stay below. They are the same for any k.
        self.first: TopK | None = None
        if self.n_candidates > needed and any(each.for_candidates_only for each in rerankers):
            self.first = TopK(weights, decoder, [], needed)
        # The engine reranks by label weights while it has the row at hand.
        self.label_weights: LabelWeights | None = None
        if rerankers and self.first is None and weights.intercept:
            (head, *others) = rerankers
            if isinstance(head, LabelWeights):
                self.label_weights, self.rerankers = head, others
        in_engine = self.label_weights is not None and not self.rerankers
        self.n_found = self.k if in_engine else self.n_candidates  # by the engine
        self.engine = decoder.predictor(
            weights, self.n_found, self.label_weights, self.n_candidates
        )

    def __call__(self, X: Any, n_jobs: int | None) -> tuple[Ints, Floats]:
        """Return the ids and scores of the k best labels of every row, best first."""
        shape = (X.shape[0], self.n_found)
        ids, scores = np.empty(shape, np.int64), np.empty(shape, np.float32)
        features = engine_features(X, self.weights.intercept, self.weights.unit_length)
        for first in range(0, len(ids), ROWS_PER_CALL):
            some = slice(first, first + ROWS_PER_CALL)
            self.engine.predict(features, first, ids[some], scores[some], threads(n_jobs))
        self.complete(X, ids, scores, n_jobs)
        if self.k < self.n_found:
            ids = np.ascontiguousarray(ids[:, : self.k])
            scores = np.ascontiguousarray(scores[:, : self.k])
        return ids, scores

    def complete(self, X: Any, ids: Ints, scores: Floats, n_jobs: int | None) -> None:
        """Do in place what the engine has not: search wider for some rows, rerank all."""
        self._widen(X, ids, scores, n_jobs)
        if self.first is not None:
            self._rerank_below(self.first, X, ids, scores, n_jobs)
            return
        for reranker in self.rerankers:
            reranker.rerank(X, ids, scores, n_jobs)

    def _rerank_below(
        self, first: TopK, X: Any, ids: Ints, scores: Floats, n_jobs: int | None
    ) -> None:
        """Rerank the first candidates, as for any k, and all others below these."""
        n = first.k
        best, best_scores = first(X, n_jobs)
        row = self.decoder.n_labels * np.arange(len(ids))[:, None]
        known = np.isin(ids + row, best + row)
        others = np.argsort(known, axis=1, kind="stable")[:, : ids.shape[1] - n]
        rest: Ints = np.take_along_axis(ids, others, axis=1)
        rest_scores: Floats = np.take_along_axis(scores, others, axis=1)
        for reranker in self.rerankers:
            reranker.rerank(X, best, best_scores, n_jobs)
            reranker.rerank(X, rest, rest_scores, n_jobs)
        ids[:, :n], scores[:, :n] = best, best_scores
        ids[:, n:], scores[:, n:] = rest, np.minimum(rest_scores, best_scores[:, -1:])

    def _widen(self, X: Any, ids: Ints, scores: Floats, n_jobs: int | None) -> None:
        """Search all rows again that lack labels."""
        lacking = np.flatnonzero(ids[:, -1] < 0)
        if not len(lacking):
            return
        rest = X if len(lacking) == len(ids) else X[lacking]
        features = engine_features(rest, self.weights.intercept, self.weights.unit_length)
        for first in range(0, len(lacking), ROWS_PER_CALL):
            rows = lacking[first : first + ROWS_PER_CALL]
            h = self.weights.edge_scores(features, first, len(rows), n_jobs)
            found, their_scores = self.decoder.topk(h, self.n_candidates)
            if self.label_weights is not None:
                part = rest[first : first + ROWS_PER_CALL]
                self.label_weights.rerank(part, found, their_scores, n_jobs)
            ids[rows], scores[rows] = found[:, : self.n_found], their_scores[:, : self.n_found]
