"""From edge scores to labels: the k best, or the scores of all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..core import _engine
from ..core.arrays import threads
from ..linear.weights import AnyWeights
from ..structure.codebook import BucketCodebook, Codebook
from ..structure.losses import Loss
from ..structure.trellis import Trellis
from .label_weights import LabelWeights

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float32]

_MIN_PATHS = 12  # per trellis, if there are several; and at least two more than labels to return
_MIN_BUCKETS = 20  # per trellis, if labels share paths; and twice as many as hold the labels wanted
# All labels are scored as fast as so many times fewer are found by list Viterbi, or (True) in
# buckets.
_SCAN = {False: 64, True: 4}
_MAX_PATHS = 4096  # the widest search before all labels are scored exhaustively
_MAX_CELLS = 1 << 22  # rows × labels scored at a time


@dataclass(frozen=True)
class Decoder:
    """Turns edge scores into labels. Free paths are never returned.

    h holds the blocks of all trellises side by side. The best paths of every trellis are the
    candidates, and a label's score is the sum of its path scores over all trellises: minus the
    log-partitions for softmax, sums of log σ(h) for logistic.
    """

    trellis: Trellis
    codebooks: list[Codebook]
    n_labels: int
    loss: Loss
    n_jobs: int | None = None

    def topk(self, h: Floats, k: int) -> tuple[Ints, Floats]:
        """Return the ids and scores of the k best labels of every row, best first."""
        k = min(k, self.n_labels)
        n_paths = self._n_paths(k)
        ids, scores = self._search(h, k, n_paths)
        while len(lacking := np.flatnonzero(ids[:, -1] < 0)):
            n_paths *= 4
            if n_paths > _MAX_PATHS:
                ids[lacking], scores[lacking] = self._best_of_all(h[lacking], k)
                break
            ids[lacking], scores[lacking] = self._search(h[lacking], k, n_paths)
        return ids, scores

    def predictor(
        self,
        weights: AnyWeights,
        k: int,
        label_weights: LabelWeights | None = None,
        n_candidates: int = 0,
    ) -> _engine.Predictor:
        """Return the engine's predictor, from features to the k best labels.

        With label weights, these are the best of `n_candidates`, reranked. It searches once: a row
        with too few labels among its best paths ends with −1 and needs `topk`.
        """
        return _engine.Predictor(
            self.trellis.engine,
            [book.decoding_engine for book in self.codebooks],
            weights.engine,
            weights.intercept,
            weights.unit_length,
            self.loss.name,
            self.n_labels,
            self._n_paths(max(k, n_candidates)),
            k,
            None if label_weights is None else label_weights.engine,
            0.0 if label_weights is None else label_weights.weight,
            n_candidates,
        )

    def all_scores(self, h: Floats) -> Floats:
        """Return the scores of all labels, shape (n_rows, n_labels)."""
        return self.scores_of(h, self._all_labels())

    def scores_of(self, h: Floats, labels: Ints) -> Floats:
        """Return the scores of labels of every row; `labels` has one row, or one for each of h.

        Label −1 scores −inf.
        """
        parts = list(self._scores_per_trellis(h, np.maximum(labels, 0)))
        total: Floats = np.sum(parts, axis=0, dtype=np.float32)
        total[np.broadcast_to(labels < 0, total.shape)] = -np.inf
        return total

    def all_log_proba(self, h: Floats) -> Floats:
        """Return the log of the trellises' mean probability of every label."""
        return self.log_proba_of(h, self._all_labels())

    def log_proba_of(self, h: Floats, labels: Ints) -> Floats:
        """Return the log of the trellises' mean probability of labels, as `scores_of`."""
        parts = list(self._scores_per_trellis(h, np.maximum(labels, 0)))
        total: Floats = np.logaddexp.reduce(parts, axis=0)
        total -= np.float32(np.log(len(self.codebooks)))
        total[np.broadcast_to(labels < 0, total.shape)] = -np.inf
        return total

    def log_proba(self, h: Floats, labels: Ints) -> Floats:
        """Return the log of the trellises' mean probability of one label per row."""
        each = [
            self.trellis.score(block, codebook.path_of(labels), self.n_jobs)
            - self.trellis.log_partition(block, self.n_jobs)
            for block, codebook in zip(self.blocks(h), self.codebooks, strict=True)
        ]
        mean: Floats = np.logaddexp.reduce(each, axis=0) - np.float32(np.log(len(each)))
        return mean

    def sample(self, h: Floats, n: int, temperature: float, rng: Any) -> tuple[Ints, Floats]:
        """Draw n labels per row from the first trellis, −1 for a free path.

        Also returns the log importance weights, −log(n · probability of the draw).
        """
        g = self.decode_scores(self.blocks(h)[0])
        paths, log_probs = self.trellis.sample(g, n, temperature, rng, self.n_jobs)
        labels = self.codebooks[0].label_of(paths)
        labels[labels >= self.n_labels] = -1
        return labels, -(log_probs + np.float32(np.log(n)))

    def blocks(self, h: Floats) -> list[Floats]:
        """Return the edge scores of every trellis, without padding."""
        blocks = h.reshape(len(h), len(self.codebooks), -1)[:, :, : self.trellis.n_edges]
        return [np.ascontiguousarray(blocks[:, r]) for r in range(len(self.codebooks))]

    def decode_scores(self, h: Floats) -> Floats:
        """Return the edge scores of one trellis whose sums along paths rank the labels."""
        g = np.empty_like(h)
        _engine.decode_scores(self.trellis.engine, self.loss.name, h, g)
        return g

    @property
    def _shares_paths(self) -> bool:
        return isinstance(self.codebooks[0], BucketCodebook)

    def _n_paths(self, k: int) -> int:
        """Return how many paths of each trellis to search: all of them if that is no more work."""
        n_paths, n_trellises = self.trellis.n_classes, len(self.codebooks)
        if self._shares_paths:
            usual = max(_MIN_BUCKETS, 2 * k * n_paths // self.n_labels)
        elif n_trellises > 1:
            usual = max(k + 2, _MIN_PATHS)
        else:
            return min(k, n_paths)
        scans = _SCAN[self._shares_paths] * n_trellises * usual >= n_paths
        return n_paths if scans else usual

    def _all_labels(self) -> Ints:
        return np.arange(self.n_labels)[None]

    def _scores_per_trellis(self, h: Floats, labels: Ints) -> Iterator[Floats]:
        shape = (len(h), labels.shape[1])
        step = max(1, _MAX_CELLS // max(1, labels.shape[1]))
        for block, codebook in zip(self.blocks(h), self.codebooks, strict=True):
            g = self.decode_scores(block)
            paths = np.broadcast_to(codebook.path_of(labels), shape)
            scores = np.empty(shape, np.float32)
            for first in range(0, len(g), step):
                some = slice(first, first + step)
                scores[some] = self.trellis.score(g[some], paths[some], self.n_jobs)
            if self.loss.normalized:
                scores -= self.trellis.log_partition(block, self.n_jobs)[:, None]
            yield scores

    def _search(self, h: Floats, k: int, n_paths: int) -> tuple[Ints, Floats]:
        ids = np.empty((len(h), k), np.int64)
        scores = np.empty((len(h), k), np.float32)
        _engine.decode(
            self.trellis.engine,
            [book.decoding_engine for book in self.codebooks],
            h,
            self.loss.name,
            self.n_labels,
            min(n_paths, self.trellis.n_classes),
            ids,
            scores,
            threads(self.n_jobs),
        )
        return ids, scores

    def _best_of_all(self, h: Floats, k: int) -> tuple[Ints, Floats]:
        ids = np.empty((len(h), k), np.int64)
        scores = np.empty((len(h), k), np.float32)
        step = max(1, _MAX_CELLS // self.n_labels)
        for first in range(0, len(h), step):
            part = self.all_scores(h[first : first + step])
            best = np.argsort(-part, axis=1, kind="stable")[:, :k]
            ids[first : first + step] = best
            scores[first : first + step] = np.take_along_axis(part, best, axis=1)
        return ids, scores
