"""Training of label vectors: a softmax over the labels of a mini-batch and a sample of all others.

The scores of sampled labels are corrected for how likely they are to be in the sample. Threads
divide the labels of a step in chunks of fixed size, so results do not depend on the number of
threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Floats, Ints, entries_of, threads
from ..core.streams import prefetch
from .discriminant import COMPARED, Scorer, Transform, hits

BATCH, _CHUNK = 256, 512  # rows of a step, and labels that a thread takes at a time
_FEWEST, _MOST = 400, 4000  # sampled labels
NO_SQUARES = 1e-8  # what AdaGrad's accumulators begin with
# The precision on held-out rows as a fraction of that on training rows tells how much can still be
# fitted: from 0.85 to 0.9, the learning rate rises up to threefold.
_OVERFITTED, _UNDERFITTED, _FASTER = 0.85, 0.9, 3.0


class BatchTargets(NamedTuple):
    """The labels of some rows in CSR layout, and the weights of the rows."""

    ptr: Ints
    labels: Ints
    weights: Floats


def mini_batches(batches: Any) -> Iterator[tuple[Floats, BatchTargets]]:
    """Yield mini-batches."""
    for examples, order in batches:
        of_rows, vectors = examples.row_weights(), examples.rows.vectors
        for first in range(0, len(order), BATCH):
            rows = order[first : first + BATCH]
            ptr, at = entries_of(examples.indptr, rows)
            targets = BatchTargets(ptr, examples.labels[at], of_rows[rows])
            yield vectors[rows].dense(), targets


class Sampled(NamedTuple):
    """The labels whose vectors a step changes, and the targets of a mini-batch among them."""

    ids: Ints  # sorted
    log_chance: Floats  # of being in the sample
    row_of: Ints  # of every target
    column: Ints  # of every target, among the ids
    share: Floats  # of every target in its row
    scale: Floats  # of the loss of every row


class LabelTrainer:
    """Vectors and offsets that are trained, with one AdaGrad accumulator per label.

    A subclass may take the steps on another device: it overrides `run`, which must draw the same
    samples, and must update `W`, `b` and `squares` before it returns.

    Parameters
    ----------
    W, b : float32 arrays of shape (n_labels, n_features) and (n_labels,)
        Vectors and offsets to start from, changed in place.
    squares : float32 array of shape (n_labels,)
        AdaGrad's accumulators.
    counts : int64 array of shape (n_labels,)
        Training rows of every label.
    n_sampled : int or "auto"
        Number of labels that are sampled for a step.
    rng : numpy.random.Generator
    n_jobs : int or None
    """

    def __init__(
        self,
        W: Floats,
        b: Floats,
        squares: Floats,
        counts: Ints,
        n_sampled: int | str,
        rng: Any,
        n_jobs: int | None = None,
    ) -> None:
        if isinstance(n_sampled, str):
            n_sampled = int(np.clip(len(W) // 2, _FEWEST, _MOST))
        self.W, self.b, self.squares, self.n_sampled, self.rng = W, b, squares, n_sampled, rng
        self.offset_squares = squares.copy()
        self.n_steps, n_threads = 0, threads(n_jobs)
        self.n_threads = (
            n_threads if n_threads > 0 else max((os.cpu_count() or 1) + 1 + n_threads, 1)
        )
        # How likely a label is to be missing among the labels of a mini-batch.
        self._absent = np.exp(-BATCH * counts / max(int(counts.sum()), 1))

    @property
    def found(self) -> Scorer:
        """The vectors and offsets."""
        return self.W, self.b

    def run(
        self,
        batches: Iterable[tuple[Floats, BatchTargets]],
        transform: Transform,
        rate: Callable[[int], float],
    ) -> None:
        """Take a step on every mini-batch; `rate` maps the number of earlier steps to its size."""
        prepared = ((transform(X), targets) for X, targets in batches)
        if self.n_threads == 1:
            for X, targets in prepared:
                self.step(X, targets, rate(self.n_steps))
            return
        with ThreadPoolExecutor(self.n_threads) as pool:
            for X, targets in prefetch(prepared):
                self.step(X, targets, rate(self.n_steps), pool.map)

    def sample(self, targets: BatchTargets) -> Sampled:
        """Return the labels of a mini-batch and a sample of all others."""
        ptr, labels, weights = targets
        n_labels = len(self._absent)
        if self.n_sampled >= n_labels:
            ids, chance = np.arange(n_labels), np.ones(n_labels)
        else:
            ids = np.union1d(labels, self.rng.integers(0, n_labels, self.n_sampled))
            missed = (1 - 1 / n_labels) ** self.n_sampled
            chance = 1 - missed * self._absent[ids]
        per_row = np.diff(ptr)
        row_of = np.repeat(np.arange(len(per_row)), per_row)
        return Sampled(
            ids,
            np.log(chance).astype(np.float32),
            row_of,
            np.searchsorted(ids, labels),
            (1 / per_row[row_of]).astype(np.float32),
            np.where(per_row > 0, weights, 0).astype(np.float32) / np.float32(BATCH),
        )

    def step(self, X: Floats, targets: BatchTargets, rate: float, mapped: Any = map) -> None:
        """Take a step on some rows: the gradient of the mean cross-entropy of their labels.

        `mapped` is `map`, or the map of a thread pool.
        """
        sampled = self.sample(targets)
        n_ids = len(sampled.ids)
        parts = [slice(first, first + _CHUNK) for first in range(0, n_ids, _CHUNK)]

        def scored(part: slice) -> tuple[Floats, Floats, Floats]:
            ids = sampled.ids[part]
            scores = X @ self.W[ids].T
            scores += self.b[ids] - sampled.log_chance[part]
            highest = scores.max(axis=1)
            scores -= highest[:, None]
            np.exp(scores, out=scores)
            return scores, highest, scores.sum(axis=1)

        found = list(mapped(scored, parts))
        most = np.max([highest for _, highest, _ in found], axis=0)
        factors = [np.exp(highest - most) for _, highest, _ in found]
        total = sum(factor * own for factor, (_, _, own) in zip(factors, found, strict=True))

        def moved(number: int) -> None:
            part, scores = parts[number], found[number][0]
            ids = sampled.ids[part]
            scores *= (factors[number] * sampled.scale / total)[:, None]
            own = (sampled.column >= part.start) & (sampled.column < part.stop)
            rows, columns = sampled.row_of[own], sampled.column[own] - part.start
            np.subtract.at(scores, (rows, columns), sampled.share[own] * sampled.scale[rows])
            gradient, of_offsets = scores.T @ X, scores.sum(axis=0)
            self.squares[ids] += np.einsum("ij,ij->i", gradient, gradient) / X.shape[1]
            gradient *= (np.float32(rate) / np.sqrt(self.squares[ids]))[:, None]
            self.W[ids] -= gradient
            self.offset_squares[ids] += of_offsets * of_offsets
            self.b[ids] -= np.float32(rate) * of_offsets / np.sqrt(self.offset_squares[ids])

        for _ in mapped(moved, range(len(parts))):
            pass
        self.n_steps += 1


def speed_up(trainer: LabelTrainer, transform: Transform, source: Any) -> float:
    """Return a factor for the learning rate: the less the vectors overfit, the larger."""
    held_out = source.held_out_rows()
    if held_out is None:
        return 1.0
    examples, order = next(source.in_order())
    seen, unseen = (
        hits(trainer.W, trainer.b, transform, part.take(rows[:: -(-len(rows) // COMPARED)])).mean()
        for part, rows in ((examples, order), (held_out, np.arange(len(held_out))))
    )
    fitted = (unseen / max(seen, 1e-9) - _OVERFITTED) / (_UNDERFITTED - _OVERFITTED)
    return 1 + (_FASTER - 1) * float(np.clip(fitted, 0, 1))
