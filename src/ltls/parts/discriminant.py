"""The starting point of training label vectors, and its mixture with the trained vectors.

Training starts from a linear discriminant analysis: the means of the labels, in coordinates in
which rows vary equally around them in all directions. The final vectors are a mixture of the
trained vectors and the means, chosen on held-out rows; the fewer rows labels have, the better are
the means.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from ..core.arrays import AnyArray, Bools, Doubles, Floats, Ints
from ..core.caching import cached_property

Scorer: TypeAlias = tuple[Floats, Floats]  # vectors and offsets of labels

COMPARED = 1000  # held-out rows to choose on, at least
NO_ROWS = -20.0  # the offset of a label without rows
START = 10.0  # what the means of labels are multiplied by, before training
_SCALES = np.concatenate([2.0 ** np.arange(-1, 5), 4.0 ** np.arange(3, 8)])  # in a mixture
_SHRINKAGE = 0.03  # of the features' variances towards their mean
_SHRINKAGE_WITHIN = 0.1  # of those within labels, beyond what is estimated
_LEAST_BETWEEN = 0.01  # least share of the variance that is assumed to be between labels
_MOST_CELLS = 1 << 24  # rows × labels that are compared
_USABLE = 0.9  # coordinates change only if the nearest mean keeps this share of its precision
_ERRORS = 2.0  # standard errors by which it must exceed this share
_AS_SMALL = 1.001  # cross-entropies up to this multiple of the smallest one count as equal
_KEPT = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)  # shares of the trained vectors
_BLOCK, _SCORED = 4096, 64  # rows or labels at a time, and rows that are compared with all labels
_UNKNOWN = 0.5  # share of the variance within labels, if they have too few rows
_OVERSAMPLED = 8  # random vectors beyond the number of rows
_ROUNDING = 1e-6  # errors of squares, which are float32
_SMALLEST = 1e-15  # of the largest feature


def one_thread() -> Any:
    """Limit each matrix product to one thread, so that results do not depend on their number."""
    return threadpool_limits(1, user_api="blas")


@dataclass(frozen=True, eq=False)
class Transform:
    """Linear coordinates: rows are centered, and divided by scales along orthogonal axes.

    Parameters
    ----------
    mean : float32 array of shape (n_features,)
    scales : float64 array of shape (n_axes,)
    axes : float64 array of shape (n_features, n_axes), optional
        Orthonormal columns. By default, the axes of the features.
    others : float
        The scale in directions that are orthogonal to all axes.
    """

    mean: Floats
    scales: Doubles
    axes: Doubles | None = None
    others: float = 1.0

    def __call__(self, X: AnyArray) -> Floats:
        """Return rows in these coordinates."""
        centered: Floats = X - self.mean
        if self.axes is None:
            centered *= (1 / self.scales).astype(np.float32)
            return centered
        return centered @ self.matrix

    @cached_property
    def matrix(self) -> Floats:
        """What centered rows are multiplied by."""
        if self.axes is None:
            return np.diag((1 / self.scales).astype(np.float32))
        return _along(self.axes, 1 / self.scales, 1 / self.others)

    @cached_property
    def _inverse(self) -> Floats:
        assert self.axes is not None
        return _along(self.axes, self.scales, self.others)

    def to_original(self, W: Floats, b: Floats) -> Scorer:
        """Return vectors and offsets for rows in the original coordinates."""
        if self.axes is None:
            own: Any = W / self.scales.astype(np.float32)
        else:
            own = W @ self.matrix
        return own, b - own @ self.mean

    def from_original(self, V: Floats, offsets: Floats) -> Scorer:
        """Return vectors and offsets for rows in these coordinates; see `to_original`."""
        W: Floats = V * self.scales.astype(np.float32) if self.axes is None else V @ self._inverse
        return W, offsets + V @ self.mean


@dataclass(frozen=True)
class Statistics:
    """Statistics of rows, each counted once for every label that it has."""

    mean: Floats
    covariance: Doubles
    within: Doubles | None  # the covariance around the means of labels, of enough rows
    n_within: int  # its degrees of freedom
    sums: Floats  # of every label's rows, (n_labels, n_features)
    counts: Ints  # of these rows
    frequencies: Ints  # of all rows of every label, including those that are held out
    analysis: Transform  # the coordinates of the nearest mean
    noise: float  # the share of the variance in them that is within labels

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
        n_within, within = n - int(np.count_nonzero(counts)), None
        if n_within >= d:
            roots = sums / np.sqrt(np.maximum(counts, 1), dtype=np.float32)[:, None]
            within = (squares - roots.T @ roots) / n_within
        total = _total(np.diag(covariance))
        noise = _UNKNOWN if within is None else _total(np.diag(within)) / total
        as_is = Transform(mean.astype(np.float32), np.full(d, total**0.5))
        frequencies = context.counts
        return cls(
            as_is.mean, covariance, within, n_within, sums, counts, frequencies, as_is, noise
        )

    def add(self, examples: Any) -> None:
        """Include further rows in the means of labels."""
        _add(examples, examples.rows.vectors.dense(), self.sums, self.counts)

    def means(self, labels: slice) -> Floats:
        """Return the means of some labels; that of all rows for a label without rows."""
        counts = self.counts[labels, None].astype(np.float32)
        return np.where(counts > 0, self.sums[labels] / np.maximum(counts, 1), self.mean)

    def transformed(self, compared: Any) -> tuple[Statistics, Transform]:
        """Return statistics with the coordinates of the nearest mean, and those of training.

        Training converges faster if features are uncorrelated and have the same variance. But if
        the covariance differs between labels, as for images, training would start from a worse
        point. So coordinates stay as they are unless the nearest mean keeps most of its precision
        on the rows `compared`.
        """
        if compared is None:
            return self, self.analysis
        usual, axes = _axes_of(self.covariance, int(self.counts.sum()))
        changed = self._analyzed(usual, axes)
        some = _some(compared, len(self.counts))
        found, needed = (
            hits(*stats.start(stats.analysis), stats.analysis, some) for stats in (changed, self)
        )
        better = found - _USABLE * needed
        if better.mean() < _ERRORS * better.std() / max(len(better), 1) ** 0.5:
            return self, self.analysis
        even = np.sqrt(usual + _SHRINKAGE * max(float(usual.mean()), 1e-30))
        return changed, _scaled(self.mean, axes, even, _total(usual / even**2))

    def _analyzed(self, usual: Doubles, axes: Doubles) -> Statistics:
        """Return statistics with the coordinates of a linear discriminant analysis.

        `usual` are the variances along the axes of the covariance.
        """
        within, total = _UNKNOWN * usual, usual
        if self.within is not None:
            within, axes = _axes_of(self.within, len(usual))
            total = np.einsum("ij,ij->j", self.covariance @ axes, axes)
        scales = np.sqrt(_shrunk(within, self.n_within))
        whole = _total(total / scales**2)
        noise = _total(within / scales**2) / whole
        return replace(self, analysis=_scaled(self.mean, axes, scales, whole), noise=noise)

    def start(self, transform: Transform) -> Scorer:
        """Return the vectors and offsets that training starts with."""
        W, b = np.empty_like(self.sums), np.empty(len(self.sums), np.float32)
        for labels in blocks(len(W)):
            W[labels], b[labels] = self._start(transform, labels)
        return W, b

    def _start(self, transform: Transform, labels: slice) -> Scorer:
        """Return the means of some labels as vectors, and offsets.

        The means are posterior means if the labels' means, and the rows around them, are normally
        distributed. The offsets are those of a linear discriminant analysis.
        """
        counts = self.counts[labels]
        sums = self.analysis(self.means(labels)) * counts.astype(np.float32)[:, None]
        W, b = start_of(sums, counts, START, self.shrinkage)
        frequencies = np.maximum(self.frequencies, 1)
        prior = self.noise / W.shape[1] * np.log(frequencies[labels] / frequencies.mean())
        b += (START * prior).astype(np.float32)
        same = transform is self.analysis
        return (W, b) if same else transform.from_original(*self.analysis.to_original(W, b))

    def minus_start(self, trained: Scorer, transform: Transform) -> Scorer:
        """Subtract the starting point from trained vectors, in place; return the differences."""
        for labels in blocks(len(self.counts)):
            for whole, part in zip(trained, self._start(transform, labels), strict=True):
                whole[labels] -= part
        return trained

    def mixed(self, mixture: Mixture, moved: Scorer, transform: Transform) -> Scorer:
        """Return the mixture of the means and `moved`, the changes made by training, in place.

        The result applies to rows in the original coordinates.
        """
        W, b = moved
        for labels in blocks(len(W)):
            both = (
                np.float32(mixture.scale) * first + np.float32(mixture.kept) * part[labels]
                for first, part in zip(self._start(transform, labels), moved, strict=True)
            )
            W[labels], b[labels] = transform.to_original(*both)
        return W, b

    @property
    def shrinkage(self) -> float:
        """How many rows the mean of all rows counts as in the mean of a label."""
        return self.noise / max(1 - self.noise, _LEAST_BETWEEN)

    def directions(self, n: int) -> Doubles:
        """Return the n axes on which labels differ most, as columns.

        They are those of a linear discriminant analysis: along all of them, rows vary equally
        around the means of their labels.
        """
        within = _UNKNOWN * self.covariance if self.within is None else self.within
        variances, axes = _axes_of(within, int(self.counts.sum()))
        axes = axes / np.sqrt(variances + max(float(variances.mean()), 1e-30))[: axes.shape[1]]
        between = np.zeros_like(within)
        for labels in blocks(len(self.counts)):
            roots = np.sqrt(self.counts[labels], dtype=np.float32)[:, None]
            moved = roots * (self.means(labels) - self.mean)
            between += moved.T @ moved
        _, own = np.linalg.eigh(axes.T @ between @ axes)
        found: Doubles = axes @ own[:, ::-1][:, :n]
        return found

    def mixture(self, trained: Scorer, transform: Transform, held_out: Any) -> Mixture:
        """Return the mixture of trained vectors and means with the best precision on some rows.

        First, the scale of the means with the smallest cross-entropy is chosen.
        """
        if held_out is None:
            return Mixture(1.0, 1.0)
        start = self.start(transform)
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
        # Ties go to the means, which vary less. With several labels per row, they go to the trained
        # vectors: a single threshold for all labels suits their scores better.
        shares = _KEPT[::-1] if held_out.multilabel else _KEPT
        smallest = np.argmax(losses <= _AS_SMALL * losses.min())  # others are less exact
        tried = [Mixture(kept, float(_SCALES[smallest])) for kept in shares]
        both_scored = (_scores(*each, transform, some) for each in (start, trained))
        for (_, first), (_, last) in zip(*both_scored, strict=True):
            both = (np.float32(m.of_means) * first + np.float32(m.kept) * last for m in tried)
            best.append([scores.argmax(axis=1) for scores in both])
        found = [some.contains(ids[:, None]).mean() for ids in np.concatenate(best, axis=1)]
        return tried[int(np.argmax(found))]


class Mixture(NamedTuple):
    """A mixture of trained vectors and means."""

    kept: float  # share of the trained vectors
    ratio: float  # scale of the means, which have the other share, relative to the starting point

    @property
    def of_means(self) -> float:
        """What the means are multiplied by."""
        return (1 - self.kept) * self.ratio

    @property
    def scale(self) -> float:
        """What the starting point is multiplied by; trained vectors include it, too."""
        return self.kept + self.of_means


def blocks(n_labels: int) -> Iterator[slice]:
    """Yield slices of labels, so that only some of them are copied at a time."""
    for first in range(0, n_labels, _BLOCK):
        yield slice(first, first + _BLOCK)


def _add(examples: Any, X: Floats, sums: Floats, counts: Ints) -> None:
    """Add the rows of every label to `sums` and `counts`."""
    Y = examples.indicators(len(counts))
    labels, column = np.unique(Y.indices, return_inverse=True)
    own = csr_array((Y.data, column.reshape(-1), Y.indptr), shape=(len(X), len(labels)))
    sums[labels] += own.T @ X
    counts += np.bincount(Y.indices, minlength=len(counts))


def _total(variances: Doubles) -> float:
    """Return the sum of variances."""
    return max(float(variances.sum()), 1e-30)


def _scaled(mean: Floats, axes: Doubles, scales: Doubles, total: float) -> Transform:
    """Return coordinates with scales enlarged such that variances with the sum `total` sum to 1."""
    scales = scales * np.sqrt(total)
    return Transform(mean, scales[: axes.shape[1]], axes, float(scales[-1]))


def _along(axes: Doubles, factors: Doubles, others: float) -> Floats:
    """Return the matrix that multiplies by factors along axes, by `others` orthogonally to them."""
    found: Doubles = (axes * (factors - others)) @ axes.T
    found[np.diag_indices_from(found)] += others
    return found.astype(np.float32)


def _axes_of(covariance: Doubles, n_rows: int) -> tuple[Doubles, Doubles]:
    """Return the variances along the principal axes of a covariance, padded with 0, and these axes.

    Few rows span a small subspace, which a randomized range finder finds (Halko et al. 2011).
    """
    d, n_axes = len(covariance), n_rows + _OVERSAMPLED
    if 2 * n_axes > d:
        variances, axes = np.linalg.eigh(covariance)
        return np.maximum(variances, 0), axes
    random = np.random.default_rng(0).normal(size=(d, n_axes))
    span = np.linalg.qr(covariance @ random).Q
    variances, own = np.linalg.eigh(span.T @ covariance @ span)
    return np.append(np.maximum(variances, 0), np.zeros(d - n_axes)), span @ own


def _shrunk(variances: Doubles, n: int) -> Doubles:
    """Return variances along the axes of a covariance, from n rows, shrunk towards their mean.

    Oracle approximating shrinkage (Chen et al. 2010): the better equal variances explain the given
    ones, the more these are shrunk.
    """
    d = len(variances)
    usual, square = max(float(variances.mean()), 1e-30), float((variances**2).mean())
    spread = (n + 1 - 2 / d) * (square - usual**2)
    estimated = (1 - 2 / d) * square + d * usual**2
    share = 1.0 if spread <= estimated else estimated / spread
    found: Doubles = (1 - share) * variances + (share + _SHRINKAGE_WITHIN) * usual
    return found


def _some(examples: Any, n_labels: int) -> Any:
    """Return evenly spaced rows; the more labels they are compared with, the fewer."""
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


def hits(W: Floats, b: Floats, transform: Transform, examples: Any) -> Bools:
    """Return for which rows the label with the highest score is right."""
    best = [scores.argmax(axis=1) for _, scores in _scores(W, b, transform, examples)]
    found: Bools = examples.contains(np.concatenate(best)[:, None])[:, 0]
    return found


def start_of(sums: Floats, counts: Ints, scale: float, shrinkage: float) -> Scorer:
    """Return vectors and offsets of labels whose rows add up to `sums`."""
    means = sums / np.maximum(counts + shrinkage, 1e-30).astype(np.float32)[:, None]
    offsets = np.where(counts > 0, -0.5 * scale * np.einsum("ij,ij->i", means, means), NO_ROWS)
    means *= np.float32(scale)
    return means, offsets.astype(np.float32)
