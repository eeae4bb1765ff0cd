"""Where the training of label vectors starts, and how much of it is kept.

Training starts with a linear discriminant analysis: at the labels' means, in coordinates in which
rows vary equally around them in all directions. Held-out rows choose a mixture of the trained
vectors and the means, which are better if labels have few rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import csr_array

from ..core.arrays import AnyArray, Doubles, Floats, Ints

Scorer: TypeAlias = tuple[Floats, Floats]  # vectors and offsets of labels

COMPARED = 1000  # held-out rows to choose on, at least
NO_ROWS = -20.0  # the offset of a label without rows
START = 10.0  # what the means of labels are multiplied by, before training
_SCALES = 2.0 ** np.arange(-1, 5)  # and may be multiplied by in a mixture
_SHRINKAGE = 0.03  # of the features' variances towards their mean
_SHRINKAGE_WITHIN = 0.1  # of those within labels, beyond what is estimated
_LEAST_BETWEEN = 0.01  # of the variance is between labels, at least
_MOST_CELLS = 1 << 24  # rows × labels that are compared
_USABLE = 0.9  # of the precision of the nearest mean, for coordinates to be changed
_KEPT = (1.0, 0.75, 0.5, 0.25, 0.1, 0.0)  # shares of the trained vectors
_BLOCK, _SCORED = 4096, 64  # rows that are summed up, and compared with all labels, at a time
_ROUNDING = 1e-6  # errors of squares, which are float32
_SMALLEST = 1e-15  # of the largest feature


@dataclass(frozen=True)
class Transform:
    """Linear coordinates, in which rows have a mean square length of 1."""

    mean: Floats
    axes: AnyArray  # (n_features, n_features)
    length: float

    @property
    def changes_axes(self) -> bool:
        """Whether features are mixed."""
        return bool(np.count_nonzero(self.axes) > len(self.axes))

    def __call__(self, X: AnyArray) -> Floats:
        """Return rows in these coordinates."""
        moved: Floats = (X - self.mean) @ self.matrix
        return moved

    @property
    def matrix(self) -> Floats:
        """What centered rows are multiplied by."""
        found: Floats = (self.axes / self.length).astype(np.float32)
        return found

    def undone(self, W: Floats, b: Floats) -> Scorer:
        """Return vectors and offsets for rows in the original coordinates."""
        own = W @ (self.axes.T / self.length).astype(np.float32)
        return own, b - own @ self.mean

    def done(self, V: Floats, offsets: Floats) -> Scorer:
        """Return vectors and offsets for rows in these coordinates, the inverse of `undone`."""
        W = np.linalg.solve(self.axes / self.length, V.T.astype(np.float64)).T
        return np.ascontiguousarray(W, np.float32), offsets + V @ self.mean


@dataclass(frozen=True)
class Statistics:
    """Statistics of rows, each counted once for every label that it has."""

    mean: Floats
    covariance: Doubles
    within: Doubles  # the covariance around the means of labels
    n_within: int  # its degrees of freedom
    sums: Floats  # of every label's rows, (n_labels, n_features)
    counts: Ints  # of these rows
    frequencies: Ints  # of all rows of every label, including those that are held out
    analysis: Transform  # the coordinates of the nearest mean

    @classmethod
    def of(cls, context: Any) -> Statistics:
        """Return the statistics of all rows to train on."""
        n_labels, d = context.n_labels, context.n_vector_features
        sums, counts = np.zeros((n_labels, d), np.float32), np.zeros(n_labels, np.int64)
        squares, largest = np.zeros((d, d)), 0.0
        for examples, order in context.source.in_order():
            for first in range(0, len(order), _BLOCK):
                part = examples.take(order[first : first + _BLOCK])
                X = part.rows.vectors.dense()
                _add(part, X, sums, counts)
                largest = max(largest, float(np.abs(X).max(initial=0)))
                X *= np.sqrt(np.diff(part.indptr), dtype=np.float32)[:, None]
                squares += X.T @ X
        if 0 < largest < _SMALLEST:
            raise ValueError(
                f"label_matrix needs features of at least {_SMALLEST:g}, since their squares are "
                f"float32; got at most {largest:g}: scale the features"
            )
        n = max(int(counts.sum()), 1)
        mean = sums.sum(axis=0, dtype=np.float64) / n
        covariance = squares / n - np.outer(mean, mean)
        rounding = _ROUNDING * float(np.trace(squares)) / n
        if np.trace(covariance) <= rounding:  # of constant features, nothing else is left
            covariance = (rounding / d or 1.0) * np.eye(d)
        n_within = n - int(np.count_nonzero(counts))
        within = covariance / 2
        if n_within >= d:
            roots = sums / np.sqrt(np.maximum(counts, 1), dtype=np.float32)[:, None]
            within = (squares - roots.T @ roots) / n_within
        as_is = Transform(mean.astype(np.float32), np.eye(d), 1.0)
        return cls(as_is.mean, covariance, within, n_within, sums, counts, context.counts, as_is)

    def with_rows(self, examples: Any) -> Statistics:
        """Return statistics in which the means of labels include further rows."""
        sums, counts = self.sums.copy(), self.counts.copy()
        _add(examples, examples.rows.vectors.dense(), sums, counts)
        return replace(self, sums=sums, counts=counts)

    def transformed(self, compared: Any) -> tuple[Statistics, Transform]:
        """Return statistics with the coordinates of the nearest mean, and those of training.

        Training converges faster if features are uncorrelated and have the same variance. But the
        rows of some labels, such as images, vary in ways of their own: training would start from a
        worse point, so their features stay.
        """
        as_is = self._scaled(np.eye(len(self.mean)))
        if compared is None:
            return replace(self, analysis=as_is), as_is
        variances, axes = np.linalg.eigh(self.within)
        analysis = self._scaled(axes / np.sqrt(_shrunk(variances, self.n_within)))
        some = _some(compared, len(self.counts))
        found, needed = (precision(*self._means(t), t, some) for t in (analysis, as_is))
        if found < _USABLE * needed:
            return replace(self, analysis=as_is), as_is
        variances, axes = np.linalg.eigh(self.covariance)
        usual = max(float(variances.mean()), 1e-30)
        even = axes / np.sqrt(np.maximum(variances, 0) + _SHRINKAGE * usual)
        return replace(self, analysis=analysis), self._scaled(even)

    def _scaled(self, axes: Doubles) -> Transform:
        return Transform(self.mean, axes, np.sqrt(_trace(self.covariance, axes)))

    def start(self, transform: Transform) -> Scorer:
        """Return the vectors and offsets that training starts with."""
        return transform.done(*self.analysis.undone(*self._means(self.analysis)))

    def _means(self, transform: Transform) -> Scorer:
        """Return the means of labels as vectors, and offsets, in some coordinates.

        Means are the posterior ones if labels and their rows are normal, and offsets those of a
        linear discriminant analysis.
        """
        shrinkage = self.shrinkage(transform)
        means = self.sums / np.maximum(self.counts, 1).astype(np.float32)[:, None]
        sums = transform(means) * self.counts.astype(np.float32)[:, None]
        W, b = start_of(sums, self.counts, START, shrinkage)
        frequencies = np.maximum(self.frequencies, 1)
        prior = self._noise(transform) / W.shape[1] * np.log(frequencies / frequencies.mean())
        return W, b + (START * prior).astype(np.float32)

    def shrinkage(self, transform: Transform) -> float:
        """Return the rows that the mean of all rows counts as in the mean of a label."""
        noise = self._noise(transform)
        return noise / max(1 - noise, _LEAST_BETWEEN)

    def _noise(self, transform: Transform) -> float:
        """Return the share of the variance that is within labels."""
        return _trace(self.within, transform.axes) / float(transform.length) ** 2

    def mixture(
        self,
        start: Scorer,
        trained: Scorer,
        transform: Transform,
        held_out: Any,
    ) -> Mixture:
        """Return the mixture of trained vectors and means with the best precision on some rows.

        The means are scaled to the smallest cross-entropy first.
        """
        if held_out is None:
            return Mixture(1.0, 1.0)
        some, best = _some(held_out, len(self.counts)), []
        losses = np.zeros(len(_SCALES))
        row_of = np.repeat(np.arange(len(some)), np.diff(some.indptr))
        for rows, scores in _scores(*start, transform, some):
            own = (row_of >= rows.start) & (row_of < rows.stop)
            at = row_of[own] - rows.start
            lacking = scores.max(axis=1)[at] - scores[at, some.labels[own]]
            scores -= scores.max(axis=1)[:, None]
            for number, scale in enumerate(_SCALES.astype(np.float32)):
                log_sums = np.log(np.exp(scale * scores).sum(axis=1))
                losses[number] += (log_sums[at] + scale * lacking).sum()
        tried = [Mixture(kept, float(_SCALES[np.argmin(losses)])) for kept in _KEPT]
        both_scored = (_scores(*each, transform, some) for each in (start, trained))
        for (_, first), (_, last) in zip(*both_scored, strict=True):
            both = (np.float32(m.of_means) * first + np.float32(m.kept) * last for m in tried)
            best.append([scores.argmax(axis=1) for scores in both])
        found = [some.contains(ids[:, None]).mean() for ids in np.concatenate(best, axis=1)]
        return tried[int(np.argmax(found))]


class Mixture(NamedTuple):
    """A mixture of trained vectors and means."""

    kept: float  # share of the trained vectors
    ratio: float  # scale of the means in the others, relative to those that training starts with

    @property
    def of_means(self) -> float:
        """What the means are multiplied by."""
        return (1 - self.kept) * self.ratio

    @property
    def scale(self) -> float:
        """The scale of the means, relative to those that training starts with."""
        return self.kept + self.of_means

    def __call__(self, start: Scorer, means: Scorer, trained: Scorer) -> Scorer:
        """Return vectors and offsets, with other means than training started with."""
        kept, scale = np.float32(self.kept), np.float32(self.scale)
        W, b = (
            scale * new + kept * (final - old)
            for new, final, old in zip(means, trained, start, strict=True)
        )
        return W, b


def _add(examples: Any, X: Floats, sums: Floats, counts: Ints) -> None:
    """Add the rows of every label to `sums` and `counts`."""
    Y = examples.indicators(len(counts))
    labels, column = np.unique(Y.indices, return_inverse=True)
    own = csr_array((Y.data, column.reshape(-1), Y.indptr), shape=(len(X), len(labels)))
    sums[labels] += own.T @ X
    counts += np.bincount(Y.indices, minlength=len(counts))


def _trace(covariance: Doubles, axes: AnyArray) -> float:
    """Return the sum of the variances along axes."""
    return max(float(((covariance @ axes) * axes).sum()), 1e-30)


def _shrunk(variances: Doubles, n: int) -> Doubles:
    """Return variances along the axes of a covariance, from n rows, shrunk towards their mean.

    The more likely equal ones would look like these, the more they are shrunk: by oracle
    approximating shrinkage (Chen et al. 2010).
    """
    d, variances = len(variances), np.maximum(variances, 0)
    usual, square = max(float(variances.mean()), 1e-30), float((variances**2).mean())
    spread = (n + 1 - 2 / d) * (square - usual**2)
    estimated = (1 - 2 / d) * square + d * usual**2
    share = 1.0 if spread <= estimated else estimated / spread
    found: Doubles = (1 - share) * variances + (share + _SHRINKAGE_WITHIN) * usual
    return found


def _some(examples: Any, n_labels: int) -> Any:
    """Return rows that are spread evenly, the fewer the more labels they are compared with."""
    n = max(_MOST_CELLS // n_labels, COMPARED)
    return examples.take(np.arange(len(examples))[:: -(-len(examples) // n)])


def _scores(
    W: Floats, b: Floats, transform: Transform, examples: Any
) -> Iterator[tuple[slice, Floats]]:
    """Yield the scores of all labels, for some rows at a time."""
    X = transform(examples.rows.vectors.dense())
    for first in range(0, len(X), _SCORED):
        rows = slice(first, first + _SCORED)
        yield rows, X[rows] @ W.T + b


def precision(W: Floats, b: Floats, transform: Transform, examples: Any) -> float:
    """Return P@1 on some rows."""
    best = [scores.argmax(axis=1) for _, scores in _scores(W, b, transform, examples)]
    return float(examples.contains(np.concatenate(best)[:, None]).mean())


def start_of(sums: Floats, counts: Ints, scale: float, shrinkage: float) -> Scorer:
    """Return vectors and offsets of labels whose rows add up to `sums`."""
    means = sums / np.maximum(counts + shrinkage, 1e-30).astype(np.float32)[:, None]
    offsets = np.where(counts > 0, -0.5 * scale * np.einsum("ij,ij->i", means, means), NO_ROWS)
    return np.float32(scale) * means, offsets.astype(np.float32)
