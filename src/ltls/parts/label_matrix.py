"""Label matrix: a dense vector for every label, for rows of dense features such as embeddings.

The score of a label is the inner product of its vector with the row, plus an offset. Vectors are
trained by a softmax over the labels of a mini-batch and a sample of all others, whose scores are
corrected for how likely they are to be in the sample. Training starts with a linear discriminant
analysis: at the labels' means, in coordinates in which rows vary equally around them in all
directions. Steps are taken in coordinates in which features are uncorrelated and have the same
variance. Features stay as they are if the nearest mean is a better prediction then. Held-out rows
choose a mixture of the trained vectors and the means, which are better if labels have few rows.
Prediction scores all labels, with int8 vectors, in microseconds.

Threads divide the labels of a step in chunks of fixed size, so results do not depend on the number
of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from ..core.arrays import AnyArray, Doubles, Floats, Ints, Tensors, entries_of, threads
from ..core.declarations import Array, Described
from ..core.settings import AUTO, Integer, Number, Settings, setting, settings
from ..core.streams import prefetch
from ..features.rows import Rows
from .base import PartExplanation, Sizes, register_part
from .dense_vectors import TENSORS, DenseVectors

_BATCH, _CHUNK = 256, 512  # rows of a step, and labels that a thread takes at a time
_FEWEST, _MOST = 400, 4000  # sampled labels
_START = 10.0  # what the means of labels are multiplied by, before training
_SCALES = 2.0 ** np.arange(-1, 5)  # and may be multiplied by in a mixture
_SHRINKAGE = 0.03  # of the features' variances towards their mean
_SHRINKAGE_WITHIN = 0.1  # of those within labels, beyond what is estimated
_LEAST_BETWEEN = 0.01  # of the variance is between labels, at least
MOST_FEATURES = 1 << 14  # their covariance has the square of this
_COMPARED, _MOST_CELLS = 1000, 1 << 24  # held-out rows to choose on, and rows × labels
_USABLE = 0.9  # of the precision of the nearest mean, for coordinates to be changed
_KEPT = (1.0, 0.75, 0.5, 0.25, 0.1, 0.0)  # shares of the trained vectors
_BLOCK, _SCORED = 4096, 64  # rows that are summed up, and compared with all labels, at a time
_NO_ROWS = -20.0  # the offset of a label without rows
_ROUNDING = 1e-6  # errors of squares, which are float32
_SMALLEST = 1e-15  # of the largest feature
_NO_SQUARES = 1e-8  # what AdaGrad's accumulators begin with
_SMALLEST_SCALE = np.float16(2**-14)  # of those in full precision
_LAST_RATE = 0.02  # of the learning rate
# After two epochs, the precision on held-out rows as a fraction of that on training rows tells how
# much can still be fitted: from 0.85 to 0.9, the learning rate rises up to threefold.
_LOOK_AFTER, _OVERFITTED, _UNDERFITTED, _FASTER = 2, 0.85, 0.9, 3.0
_PASSES, _ROWS, _FURTHER_RATE = 10, 20_000, 1.0  # over a further batch and the memory
_WEIGHTS = (1.0, 0.0, 0.1, 0.25, 0.5, 2.0, 4.0, 16.0)  # beside parts of sparse features
_NUMBERS = ("square", "scale", "shrinkage")  # of a part
_SEEN_AS = 32  # rows that a new label is trained on at least, so that it is found among others


def _one_thread() -> Any:
    """Limit each matrix product to one thread, so that results do not depend on their number."""
    return threadpool_limits(1, user_api="blas")


@settings
class LabelMatrix(Settings):
    """How the vectors of labels are trained, for up to 16,384 dense features."""

    epochs: int = setting(Integer(1), default=8, help="Number of passes over the training data.")
    learning_rate: float | str = setting(
        Number(high=1e6, above=0),
        AUTO,
        default=AUTO,
        help="Step size of AdaGrad, for rows that are scaled to a mean square length of 1. "
        '"auto" is 1 for features that are made uncorrelated, and 0.3 for others; up to three '
        "times as much if held-out rows are predicted nearly as well as training rows.",
    )
    n_negatives: int | str = setting(
        Integer(1),
        AUTO,
        default=AUTO,
        help='Number of labels that are sampled for a mini-batch of 256 rows. "auto" is half of '
        "all labels, at least 400 and at most 4,000.",
    )


@register_part
@dataclass(frozen=True, eq=False)
class LabelMatrixPart:
    """The vectors of all labels.

    Parameters
    ----------
    vectors : DenseVectors
    mean : float32 array of shape (n_features,)
        The mean of the training rows.
    square : float
        AdaGrad's accumulators per training row of a label, on average: to train further.
    scale, shrinkage : float
        What the means of new labels are multiplied by, and how many rows the mean of all rows
        counts as in them.
    """

    name: ClassVar[str] = "label_matrix"
    settings: ClassVar[type[Settings]] = LabelMatrix
    scales_steps: ClassVar[bool] = True
    # Beside sparse features, the best other weights depend on whether dense ones help at all.
    chosen_first: ClassVar[bool] = True

    vectors: DenseVectors
    mean: Floats
    square: float
    scale: float = _START
    shrinkage: float = 1.0

    @classmethod
    def of_vectors(
        cls,
        vectors: Floats,
        offsets: Floats,
        mean: Floats,
        square: float,
        scale: float = _START,
        shrinkage: float = 1.0,
    ) -> LabelMatrixPart:
        """Round vectors of shape (n_labels, n_features) to int8."""
        scales = np.sqrt(np.mean(vectors * vectors, axis=0, dtype=np.float64))
        feature_scales = np.where(scales > 0, scales, 1).astype(np.float32)
        even = vectors / feature_scales
        # A label without rows has a vector near 0, and an offset that must fit into an integer.
        largest = np.abs(even).max(axis=1)
        usual, most = np.float32(0.25) * largest.mean(), largest.max() or np.float32(1)
        # Scales are rounded to float16 before vectors are to int8, which makes up for it.
        label_scales = (np.maximum(largest, usual) / most).astype(np.float16)
        label_scales = np.maximum(label_scales, _SMALLEST_SCALE).astype(np.float32)
        unit = most / np.float32(127)
        rounded = np.rint(even / (label_scales * unit)[:, None]).astype(np.int8)
        found = DenseVectors.of(rounded, label_scales, offsets, feature_scales * unit)
        return cls(found, mean, square, scale, shrinkage)

    @property
    def n_bytes(self) -> int:
        """How large the vectors are: a byte for every feature of every label."""
        return len(self.vectors) * len(self.vectors.feature_scales)

    def weights_to_try(self, plan: Any) -> tuple[float, ...]:
        """Return the weights to try on held-out rows, including 0 beside sparse features."""
        return _WEIGHTS if plan.beside else (1.0,)

    # Prediction

    def candidates(self, rows: Rows, n: int, n_jobs: int | None) -> Ints:
        """Return the n best labels of all."""
        return self.vectors.highest(rows.vectors, n, n_jobs)[0]

    def score(self, rows: Rows, ids: Ints, n_jobs: int | None) -> Floats:
        """Return the scores of labels, an array like `ids`."""
        return self.vectors.products(rows.vectors, ids, n_jobs)

    def explain(self, rows: Rows, label: int) -> PartExplanation:
        """Return what every feature of the only row adds to the score of a label."""
        features, values = rows.vectors.entries(0)
        contributions = values * self.vectors.vector(label).astype(np.float64)[features]
        offset = float(self.vectors.offsets[label])
        score = float(contributions.sum()) + offset
        columns = rows.first_beside + features
        return PartExplanation(self.name, columns, contributions, offset, score, "linear_score")

    # Training

    @classmethod
    def fit(cls, given: LabelMatrix, context: Any) -> LabelMatrixPart:
        """Train the vectors of all labels."""
        rng = np.random.default_rng(context.source.rng.randint(2**31))
        with _one_thread():
            stats = _Statistics.of(context)
            held_out = context.source.held_out_rows()
            stats, transform = stats.transformed(held_out)
            start = stats.start(transform)
            trainer = LabelTrainer.new(given, *start, stats.counts, rng, context.how.n_jobs)
            trainer = context.label_trainer(trainer)
            highest = given.filled(learning_rate=1.0 if transform.changes_axes else 0.3)
            rate = float(highest.learning_rate)
            n_steps = given.epochs * -(-context.source.n_rows // _BATCH)

            def rate_at(step: int) -> float:
                return float(rate * max(1 - step / n_steps, _LAST_RATE))

            for epoch in range(given.epochs):
                looks = epoch == _LOOK_AFTER and not context.plan.few_rows
                if looks and given.learning_rate == AUTO:
                    rate *= _speed_up(trainer, transform, context.source)
                trainer.run(mini_batches(context.source.epoch()), transform, rate_at)
            mixture = stats.mixture(start, trainer, transform, held_out)
            context.kept[cls.name] = trainer, transform, stats, start, mixture, rate
            square = float(trainer.squares.sum(dtype=np.float64) / max(int(stats.counts.sum()), 1))
            found = transform.undone(*mixture(start, start, trainer))
        return cls.of_vectors(
            *found,
            mean=stats.mean,
            square=square,
            scale=_START * mixture.scale,
            shrinkage=stats.shrinkage(stats.analysis),
        )

    def finish(self, context: Any) -> LabelMatrixPart:
        """Return the vectors after a pass over the held-out rows, which count in the means, too."""
        rows = context.source.held_out_rows()
        if rows is None or context.plan.early_stopping:
            return self
        trainer, transform, stats, start, mixture, rate = context.kept[self.name]
        order = trainer.rng.permutation(len(rows))
        with _one_thread():
            trainer.run(mini_batches([(rows, order)]), transform, lambda _: _LAST_RATE * rate)
            of_all = stats.with_rows(rows).start(transform)
        return self._with(*transform.undone(*mixture(start, of_all, trainer)))

    def _with(self, vectors: Floats, offsets: Floats) -> LabelMatrixPart:
        kept = {each.name: getattr(self, each.name) for each in fields(self)[1:]}
        return self.of_vectors(vectors, offsets, **kept)

    def grow(self, n_labels: int, n_new_columns: int) -> LabelMatrixPart:
        """Return the vectors with more labels, which are not predicted yet."""
        more = n_labels - len(self.vectors)
        if not more:
            return self
        vectors = np.pad(self.vectors.matrix(), ((0, more), (0, 0)))
        offsets = np.pad(self.vectors.offsets, (0, more), constant_values=_NO_ROWS)
        return self._with(vectors, offsets)

    def learn(self, context: Any) -> LabelMatrixPart:
        """Return the vectors after training on a further batch and stored rows."""
        wanted = context.labels_to_train()
        return (
            self._trained(context.rows_at_hand(), wanted, context.counts, context.how.n_jobs)
            if len(wanted)
            else self
        )

    def _trained(
        self, examples: Any, wanted: Ints, counts: Ints, n_jobs: int | None
    ) -> LabelMatrixPart:
        """Return the vectors with those of some labels retrained on a few rows."""
        transform = Transform(
            self.mean, np.diag(self.vectors.feature_scales.astype(np.float64)), 1.0
        )
        with _one_thread():
            X = transform(examples.rows.vectors.dense())
            length = float(np.sqrt(np.mean(np.einsum("ij,ij->i", X, X)))) or 1.0
            transform, X = replace(transform, length=length), X / np.float32(length)
            W, b = transform.done(self.vectors.matrix(), self.vectors.offsets)
            Y = examples.label_matrix(len(self.vectors))
            own = np.bincount(Y.indices, minlength=len(self.vectors))
            sums, counted = (Y.T @ X)[wanted], own[wanted]
            W[wanted], b[wanted] = _start(sums, counted, self.scale, self.shrinkage)
            before = W.copy(), b.copy()
            squares = np.maximum(self.square * counts, _NO_SQUARES).astype(np.float32)
            squares[wanted] = _NO_SQUARES
            rng = np.random.default_rng(int(counts.sum()))
            n_sampled = _n_sampled(AUTO, len(W))
            trainer = LabelTrainer(W, b, squares, counts, n_sampled, rng, n_jobs)
            of_new = Y[:, wanted] @ (_SEEN_AS // np.maximum(own[wanted], 1))
            repeated = np.repeat(np.arange(len(examples)), np.maximum(of_new, 1).astype(np.int64))
            for _ in range(max(min(_ROWS // max(len(examples), 1), _PASSES), 1)):
                order = rng.permutation(repeated)
                trainer.run(mini_batches([(examples, order)]), transform, lambda _: _FURTHER_RATE)
        # A few rows of other labels would cost more accuracy than they give.
        others = np.delete(np.arange(len(self.vectors)), wanted)
        W[others], b[others] = before[0][others], before[1][others]
        return self._with(*transform.undone(W, b))

    # Files

    def state(self) -> tuple[dict[str, Any], Tensors]:
        """Return a JSON description and tensors."""
        vectors = {name: getattr(self.vectors, name) for name in TENSORS}
        vectors["scales"] = vectors["scales"].astype(np.float16)
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        return numbers, {**vectors, "mean": self.mean}

    @classmethod
    def from_state(cls, section: Described, sizes: Sizes, memory: Any = None) -> LabelMatrixPart:
        """Restore vectors from their `state`."""
        n_features = sizes.n_vector_features
        known = {
            "n_labels": sizes.n_labels,
            "n_features": n_features,
            "n_values": DenseVectors.n_values(sizes.n_labels, n_features),
        }
        declared = {
            **TENSORS,
            "mean": Array("f4", ("n_features",), low=-1e30, high=1e30),
        }
        tensors = section.tensors(declared, known)
        scales, offsets, of_features, mean = (
            np.array(tensors[name], np.float32) for name in list(declared)[1:]
        )
        vectors = DenseVectors(tensors["values"], scales, offsets, of_features)
        # Files of before the first release have no scale and no shrinkage.
        numbers = {name: section.number(name, 0, 1e30) for name in _NUMBERS if section.has(name)}
        return cls(vectors, mean, **numbers)

    def describe(self) -> dict[str, Any]:
        """Return facts for ``ltls info``."""
        n_features = len(self.vectors.feature_scales)
        return {"label_matrix": f"{len(self.vectors):,} × {n_features:,}"}


# Rows


class Targets(NamedTuple):
    """The labels of some rows in CSR layout, and the weights of the rows."""

    ptr: Ints
    labels: Ints
    weights: Floats


def mini_batches(batches: Any) -> Iterator[tuple[Floats, Targets]]:
    """Yield mini-batches."""
    for examples, order in batches:
        of_rows, vectors = examples.row_weights(), examples.rows.vectors
        for first in range(0, len(order), _BATCH):
            rows = order[first : first + _BATCH]
            ptr, at = entries_of(examples.indptr, rows)
            targets = Targets(ptr, examples.labels[at], of_rows[rows])
            yield vectors[rows].dense(), targets


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

    def undone(self, W: Floats, b: Floats) -> tuple[Floats, Floats]:
        """Return vectors and offsets for rows in the original coordinates."""
        own = W @ (self.axes.T / self.length).astype(np.float32)
        return own, b - own @ self.mean

    def done(self, V: Floats, offsets: Floats) -> tuple[Floats, Floats]:
        """Return vectors and offsets for rows in these coordinates, the inverse of `undone`."""
        W = np.linalg.solve(self.axes / self.length, V.T.astype(np.float64)).T
        return np.ascontiguousarray(W, np.float32), offsets + V @ self.mean


@dataclass(frozen=True)
class _Statistics:
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
    def of(cls, context: Any) -> _Statistics:
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
        if np.trace(covariance) < rounding:  # of constant features, nothing else is left
            covariance = rounding / d * np.eye(d)
        n_within = n - int(np.count_nonzero(counts))
        within = covariance / 2
        if n_within >= d:
            roots = sums / np.sqrt(np.maximum(counts, 1), dtype=np.float32)[:, None]
            within = (squares - roots.T @ roots) / n_within
        as_is = Transform(mean.astype(np.float32), np.eye(d), 1.0)
        return cls(as_is.mean, covariance, within, n_within, sums, counts, context.counts, as_is)

    def with_rows(self, examples: Any) -> _Statistics:
        """Return statistics in which the means of labels include further rows."""
        sums, counts = self.sums.copy(), self.counts.copy()
        _add(examples, examples.rows.vectors.dense(), sums, counts)
        return replace(self, sums=sums, counts=counts)

    def transformed(self, compared: Any) -> tuple[_Statistics, Transform]:
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
        precision, needed = (_precision(*self._means(t), t, some) for t in (analysis, as_is))
        if precision < _USABLE * needed:
            return replace(self, analysis=as_is), as_is
        variances, axes = np.linalg.eigh(self.covariance)
        usual = max(float(variances.mean()), 1e-30)
        even = axes / np.sqrt(np.maximum(variances, 0) + _SHRINKAGE * usual)
        return replace(self, analysis=analysis), self._scaled(even)

    def _scaled(self, axes: Doubles) -> Transform:
        return Transform(self.mean, axes, np.sqrt(_trace(self.covariance, axes)))

    def start(self, transform: Transform) -> tuple[Floats, Floats]:
        """Return the vectors and offsets that training starts with."""
        return transform.done(*self.analysis.undone(*self._means(self.analysis)))

    def _means(self, transform: Transform) -> tuple[Floats, Floats]:
        """Return the means of labels as vectors, and offsets, in some coordinates.

        Means are the posterior ones if labels and their rows are normal, and offsets those of a
        linear discriminant analysis.
        """
        shrinkage = self.shrinkage(transform)
        means = self.sums / np.maximum(self.counts, 1).astype(np.float32)[:, None]
        sums = transform(means) * self.counts.astype(np.float32)[:, None]
        W, b = _start(sums, self.counts, _START, shrinkage)
        frequencies = np.maximum(self.frequencies, 1)
        prior = self._noise(transform) / W.shape[1] * np.log(frequencies / frequencies.mean())
        return W, b + (_START * prior).astype(np.float32)

    def shrinkage(self, transform: Transform) -> float:
        """Return the rows that the mean of all rows counts as in the mean of a label."""
        noise = self._noise(transform)
        return noise / max(1 - noise, _LEAST_BETWEEN)

    def _noise(self, transform: Transform) -> float:
        """Return the share of the variance that is within labels."""
        return _trace(self.within, transform.axes) / float(transform.length) ** 2

    def mixture(
        self,
        start: tuple[Floats, Floats],
        trainer: LabelTrainer,
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
        means, trained = (
            _scores(*each, transform, some) for each in (start, (trainer.W, trainer.b))
        )
        for (_, first), (_, last) in zip(means, trained, strict=True):
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

    def __call__(
        self, start: tuple[Floats, Floats], means: tuple[Floats, Floats], trainer: LabelTrainer
    ) -> tuple[Floats, Floats]:
        """Return vectors and offsets, with other means than training started with."""
        kept, scale = np.float32(self.kept), np.float32(self.scale)
        W, b = (
            scale * new + kept * (trained - old)
            for new, trained, old in zip(means, (trainer.W, trainer.b), start, strict=True)
        )
        return W, b


def _add(examples: Any, X: Floats, sums: Floats, counts: Ints) -> None:
    """Add the rows of every label to `sums` and `counts`."""
    Y = examples.label_matrix(len(counts))
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
    n = max(_MOST_CELLS // n_labels, _COMPARED)
    return examples.take(np.arange(len(examples))[:: -(-len(examples) // n)])


def _scores(
    W: Floats, b: Floats, transform: Transform, examples: Any
) -> Iterator[tuple[slice, Floats]]:
    """Yield the scores of all labels, for some rows at a time."""
    X = transform(examples.rows.vectors.dense())
    for first in range(0, len(X), _SCORED):
        rows = slice(first, first + _SCORED)
        yield rows, X[rows] @ W.T + b


def _precision(W: Floats, b: Floats, transform: Transform, examples: Any) -> float:
    """Return P@1 on some rows."""
    best = [scores.argmax(axis=1) for _, scores in _scores(W, b, transform, examples)]
    return float(examples.contains(np.concatenate(best)[:, None]).mean())


def _speed_up(trainer: LabelTrainer, transform: Transform, source: Any) -> float:
    """Return a factor of the learning rate, which is larger the less labels are overfitted."""
    held_out = source.held_out_rows()
    if held_out is None:
        return 1.0
    examples, order = next(source.in_order())
    seen, unseen = (
        _precision(trainer.W, trainer.b, transform, part.take(rows[:: -(-len(rows) // _COMPARED)]))
        for part, rows in ((examples, order), (held_out, np.arange(len(held_out))))
    )
    fitted = (unseen / max(seen, 1e-9) - _OVERFITTED) / (_UNDERFITTED - _OVERFITTED)
    return 1 + (_FASTER - 1) * float(np.clip(fitted, 0, 1))


def _start(sums: Floats, counts: Ints, scale: float, shrinkage: float) -> tuple[Floats, Floats]:
    """Return vectors and offsets of labels whose rows add up to `sums`."""
    means = sums / np.maximum(counts + shrinkage, 1e-30).astype(np.float32)[:, None]
    offsets = np.where(counts > 0, -0.5 * scale * np.einsum("ij,ij->i", means, means), _NO_ROWS)
    return np.float32(scale) * means, offsets.astype(np.float32)


def _n_sampled(given: int | str, n_labels: int) -> int:
    n = int(np.clip(n_labels // 2, _FEWEST, _MOST)) if isinstance(given, str) else given
    return min(n, n_labels)


class Sampled(NamedTuple):
    """The labels that a step is taken on, and the targets of a mini-batch among them."""

    ids: Ints  # sorted
    log_chance: Floats  # of being in the sample
    row_of: Ints  # of every target
    column: Ints  # of every target, among the ids
    share: Floats  # of every target in its row
    scale: Floats  # of the loss of every row


class LabelTrainer:
    """Vectors and offsets that are trained, with one AdaGrad accumulator per label.

    A subclass may take the steps on another device: it overrides `run`, and has `W`, `b` and
    `squares` when `run` returns. The samples are the same.
    """

    def __init__(
        self,
        W: Floats,
        b: Floats,
        squares: Floats,
        counts: Ints,
        n_sampled: int,
        rng: Any,
        n_jobs: int | None = None,
    ) -> None:
        self.W, self.b, self.squares, self.n_sampled, self.rng = W, b, squares, n_sampled, rng
        self.offset_squares = squares.copy()
        self.n_steps, n_threads = 0, threads(n_jobs)
        self.n_threads = (
            n_threads if n_threads > 0 else max((os.cpu_count() or 1) + 1 + n_threads, 1)
        )
        # How likely a label is to be missing among the labels of a mini-batch.
        self._absent = np.exp(-_BATCH * counts / max(int(counts.sum()), 1))

    @classmethod
    def new(
        cls,
        given: LabelMatrix,
        W: Floats,
        b: Floats,
        counts: Ints,
        rng: Any,
        n_jobs: int | None,
    ) -> LabelTrainer:
        """Return vectors that training starts with."""
        squares = np.full(len(W), _NO_SQUARES, np.float32)
        n_sampled = _n_sampled(given.n_negatives, len(W))
        return cls(W.copy(), b.copy(), squares, counts, n_sampled, rng, n_jobs)

    def run(
        self,
        batches: Iterable[tuple[Floats, Targets]],
        transform: Transform,
        rate: Callable[[int], float],
    ) -> None:
        """Take a step on every mini-batch; `rate` is the learning rate by the number of steps."""
        prepared = ((transform(X), targets) for X, targets in batches)
        if self.n_threads == 1:
            for X, targets in prepared:
                self.step(X, targets, rate(self.n_steps))
            return
        with ThreadPoolExecutor(self.n_threads) as pool:
            for X, targets in prefetch(prepared):
                self.step(X, targets, rate(self.n_steps), pool.map)

    def sample(self, targets: Targets) -> Sampled:
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
            np.where(per_row > 0, weights, 0).astype(np.float32) / np.float32(_BATCH),
        )

    def step(self, X: Floats, targets: Targets, rate: float, mapped: Any = map) -> None:
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
