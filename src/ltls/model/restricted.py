"""Restricted answers: the exact k best of some of the labels, by trellises and rerankers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..features.rows import engine_features
from ..linear.weights import AnyWeights
from .decoder import Decoder
from .topk import ROWS_PER_CALL, Reranker, TopK

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float32]

MAX_CELLS = 1 << 22  # rows × labels scored at a time


@dataclass(frozen=True)
class AllowedLabels:
    """The labels to choose from: one set for all rows, or one per row.

    Set i is ids[indptr[i]:indptr[i + 1]], increasing and without duplicates.
    """

    indptr: Ints
    ids: Ints

    @classmethod
    def of(cls, indptr: Ints, ids: Ints) -> AllowedLabels:
        """Sort the ids of every set and drop duplicates."""
        sets = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        order = np.lexsort((ids, sets))
        sets, ids = sets[order], ids[order]
        is_first = np.ones(len(ids), bool)
        is_first[1:] = (ids[1:] != ids[:-1]) | (sets[1:] != sets[:-1])
        counts = np.bincount(sets[is_first], minlength=len(indptr) - 1)
        return cls(np.concatenate([[0], np.cumsum(counts)]), ids[is_first])

    @property
    def n_sets(self) -> int:
        """1 if all rows share a set, else the number of rows."""
        return len(self.indptr) - 1

    @property
    def sizes(self) -> Ints:
        """The number of labels of every set."""
        return np.diff(self.indptr)

    def of_rows(self, rows: slice) -> Ints:
        """Return the ids of rows as a new array, padded with −1 at the end."""
        if self.n_sets == 1:
            return np.tile(self.ids, (rows.stop - rows.start, 1))
        sizes = self.sizes[rows]
        ids = np.full((len(sizes), int(sizes.max(initial=0))), -1, np.int64)
        ids[np.arange(ids.shape[1]) < sizes[:, None]] = self.ids[
            self.indptr[rows.start] : self.indptr[rows.stop]
        ]
        return ids

    def blocks(self, n_rows: int) -> Iterator[tuple[slice, Ints]]:
        """Yield blocks of rows and their ids, so many rows that scores take limited memory."""
        step = MAX_CELLS // max(1, int(self.sizes.max(initial=1)))
        step = max(1, min(step, ROWS_PER_CALL))
        for first in range(0, n_rows, step):
            rows = slice(first, min(first + step, n_rows))
            yield rows, self.of_rows(rows)


class LabelScorer:
    """The full score of given labels: of the trellises and all rerankers.

    Parameters
    ----------
    weights : Weights or PrunedWeights
    decoder : Decoder
    rerankers : sequence of Reranker
        Applied one after the other. If one of them is for candidates only, all other labels score
        at most as high as the lowest candidate, in the order of their own scores.
    """

    def __init__(
        self, weights: AnyWeights, decoder: Decoder, rerankers: Sequence[Reranker]
    ) -> None:
        self.weights, self.decoder, self.rerankers = weights, decoder, rerankers
        limited = any(part.for_candidates_only for part in rerankers)
        needed = max((part.n_candidates for part in rerankers), default=0)
        self.first = TopK(weights, decoder, [], needed) if limited else None

    def __call__(
        self, X: Any, ids: Ints, n_jobs: int | None, k: int | None = None
    ) -> tuple[Ints, Floats]:
        """Return the k best of given labels of every row, or all, best first, and their scores.

        Parameters
        ----------
        X : array or CSR matrix
        ids : array of shape (n_rows, n)
            Distinct labels, padded with −1 at the end; −1 scores −inf.
        n_jobs : int or None
        k : int, optional
        """
        features = engine_features(X, self.weights.intercept, self.weights.unit_length)
        h = self.weights.edge_scores(features, 0, len(ids), n_jobs)
        ids, scores = ids.copy(), self.decoder.scores_of(h, ids)
        for reranker in self.rerankers:
            reranker.rerank(X, ids, scores, n_jobs)
        limit: Any = np.float32(np.inf)
        is_other = ids < 0
        if self.first is not None:
            best, best_scores = self.first(X, n_jobs)
            for reranker in self.rerankers:
                reranker.rerank(X, best, best_scores, n_jobs)
            row = self.decoder.n_labels * np.arange(len(ids))[:, None]
            is_other |= ~np.isin(ids + row, best + row)
            limit = best_scores[:, -1:]
        order = np.lexsort((ids, -scores, is_other))[:, :k]
        scores = np.where(is_other, np.minimum(scores, limit), scores)
        return np.take_along_axis(ids, order, 1), np.take_along_axis(scores, order, 1)
