"""From edge scores to labels: the best k, all of them, or those above a threshold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _engine
from .assignment import Codebook
from .trellis import Trellis

_MOST_PATHS = 4096  # the widest search before all labels are scored one by one
_CELLS = 1 << 22  # rows × labels that are scored at a time


@dataclass(frozen=True)
class Decoder:
    """Turns edge scores into labels. Paths without a label are never answers."""

    trellis: Trellis
    codebook: Codebook
    n_labels: int
    loss: str
    n_jobs: int | None = None

    def decision_scores(self, h: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the edge scores whose sums rank the labels."""
        if self.loss != "logistic":
            return h
        g = np.empty_like(h)
        _engine.logistic_scores(self.trellis._engine, h, g)
        return g

    def offsets(self, h: npt.NDArray[np.float32]) -> Any:
        """Return what is taken from every score of a row: the log-partition makes probabilities."""
        if self.loss != "softmax":
            return 0
        return self.trellis.log_partition(h, self.n_jobs)[:, None]

    def topk(
        self, h: npt.NDArray[np.float32], k: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Return the ids and scores of the k best labels of every row, best first."""
        k = min(k, self.n_labels)
        g = self.decision_scores(h)
        ids = np.full((len(h), k), -1, np.int64)
        scores = np.full((len(h), k), -np.inf, np.float32)
        rows = np.arange(len(h))
        n_paths = k
        while len(rows):
            if n_paths > _MOST_PATHS:
                ids[rows], scores[rows] = self._best_of_all(g[rows], k)
                break
            paths, path_scores = self.trellis.topk(g[rows], n_paths, self.n_jobs)
            labels = self._labels_of(paths)
            found = labels >= 0
            # The k first labels of each row, in order; rows that lack some search wider.
            enough = found.sum(axis=1) >= k
            first = np.argsort(~found[enough], axis=1, kind="stable")[:, :k]
            ids[rows[enough]] = np.take_along_axis(labels[enough], first, axis=1)
            scores[rows[enough]] = np.take_along_axis(path_scores[enough], first, axis=1)
            rows = rows[~enough]
            n_paths *= 4
        scores -= self.offsets(h)
        return ids, scores

    def above(
        self, h: npt.NDArray[np.float32], threshold: float, k: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the labels whose score reaches a threshold: how many in each row, and their ids.

        `k` is a guess of how many that will be at most; the search widens where it is too few.
        """
        while True:
            ids, scores = self.topk(h, k)
            given = scores >= threshold
            if k >= self.n_labels or not given[:, -1].any():
                return given.sum(axis=1), ids[given]
            k *= 4

    def all_scores(self, h: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the scores of all labels, shape (rows, n_labels)."""
        scores = self._label_scores(self.decision_scores(h))
        scores -= self.offsets(h)
        return scores

    def _labels_of(self, paths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        labels: npt.NDArray[np.int64] = self.codebook.label_of(paths)
        return np.where(labels < self.n_labels, labels, -1)

    def _label_scores(self, g: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        paths = self.codebook.path_of(np.arange(self.n_labels))
        scores = np.empty((len(g), self.n_labels), np.float32)
        step = max(1, _CELLS // self.n_labels)
        for first in range(0, len(g), step):
            part = g[first : first + step]
            each = np.broadcast_to(paths, (len(part), self.n_labels))
            scores[first : first + step] = self.trellis.score(part, each, self.n_jobs)
        return scores

    def _best_of_all(
        self, g: npt.NDArray[np.float32], k: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        ids = np.empty((len(g), k), np.int64)
        scores = np.empty((len(g), k), np.float32)
        step = max(1, _CELLS // self.n_labels)
        for first in range(0, len(g), step):
            part = self._label_scores(g[first : first + step])
            best = np.argsort(-part, axis=1, kind="stable")[:, :k]
            ids[first : first + step] = best
            scores[first : first + step] = np.take_along_axis(part, best, axis=1)
        return ids, scores


def best_threshold(
    scores: npt.NDArray[np.float32], hits: npt.NDArray[np.bool_], n_true: int
) -> float:
    """Return the score from which saying yes gives the best micro-averaged F1.

    Parameters
    ----------
    scores, hits : arrays of the same shape
        Scores of label candidates, and whether they are right.
    n_true : int
        The number of true labels, found or not.
    """
    order = np.argsort(-scores, axis=None, kind="stable")
    ranked, right = scores.ravel()[order], np.cumsum(hits.ravel()[order])
    f1 = 2 * right / (np.arange(1, len(order) + 1) + n_true)
    f1[:-1][ranked[:-1] == ranked[1:]] = -1  # a threshold cannot part equal scores
    return float(ranked[np.argmax(f1)])
