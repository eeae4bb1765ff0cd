"""Label matrix: a dense vector for every label, for rows of dense features such as embeddings.

The score of a label is the inner product of its vector with the row, plus an offset. Vectors are
trained by a softmax over the labels of a mini-batch and a sample of all others, whose scores are
corrected for how likely they are to be in the sample. Training starts at the labels' means, in
coordinates in which features are uncorrelated and have the same variance, unless labels are told
apart much worse there. All labels are scored, as int8: that takes microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from ..core import _engine
from ..core.arrays import AnyArray, Doubles, Floats, Ints, Tensors, entries_of, int8_scales, threads
from ..core.caching import cached_property
from ..core.declarations import Array, Described
from ..core.settings import AUTO, Integer, Number, Settings, setting, settings
from ..features.rows import Rows
from .base import PartExplanation, Sizes, register_part

_LANES = 16  # vectors that the engine reads side by side
_LARGEST, _LARGEST_TOTAL = 16000.0, 9e6  # of a row as integers, and of its sum
_LARGEST_OFFSET = 4e8  # as an integer
_BATCH = 256
_FEWEST, _MOST = 400, 2000  # sampled labels
_START = 10.0  # what the means of labels are multiplied by
_SHRINKAGE = 0.03  # of the features' variances towards their mean
_SAMPLE = 50_000  # rows that variances are computed from
_COMPARED = 1000  # held-out rows that coordinates are compared on
_USABLE = 0.8  # of the precision at the start, for coordinates to be changed
_BLOCK = 4096  # rows that are summed up at a time
_NO_ROWS = -20.0  # the offset of a label without rows
_NO_SQUARES = 1e-8  # what AdaGrad's accumulators begin with
_LAST_RATE = 0.02  # of the learning rate
_PASSES, _ROWS, _FURTHER_RATE = 10, 20_000, 0.3  # over a further batch and the memory


def _one_thread() -> Any:
    """Limit matrix products to one thread, so that results do not depend on their number."""
    return threadpool_limits(1, user_api="blas")


@settings
class LabelMatrix(Settings):
    """How the vectors of labels are trained."""

    epochs: int = setting(Integer(1), default=8, help="Number of passes over the training data.")
    learning_rate: float | str = setting(
        Number(high=1e6, above=0),
        AUTO,
        default=AUTO,
        help="Step size of AdaGrad, for rows that are scaled to a mean square length of 1. "
        '"auto" is 1 for features that are made uncorrelated, and 0.3 for others.',
    )
    n_negatives: int | str = setting(
        Integer(1),
        AUTO,
        default=AUTO,
        help='Labels that are sampled for a mini-batch of 256 rows. "auto" is a quarter of all, '
        "from 400 to 2,000.",
    )


@register_part
@dataclass(frozen=True, eq=False)
class LabelMatrixPart:
    """The vectors of all labels.

    Parameters
    ----------
    values : int8 array
        The vectors, as the engine takes them; see `_packed`.
    scales, offsets : float32 arrays of shape (n_labels,)
        What the values of a label are multiplied by, and what is added to its inner product.
    feature_scales : float32 array of shape (n_features,)
        What features are multiplied by.
    mean : float32 array of shape (n_features,)
        The mean of the training rows.
    squares : float32 array of shape (n_labels,)
        AdaGrad's accumulators, to train further.
    """

    name: ClassVar[str] = "label_matrix"
    settings: ClassVar[type[Settings]] = LabelMatrix

    values: AnyArray
    scales: Floats
    offsets: Floats
    feature_scales: Floats
    mean: Floats
    squares: Floats

    @classmethod
    def of_vectors(
        cls, vectors: Floats, offsets: Floats, mean: Floats, squares: Floats
    ) -> LabelMatrixPart:
        """Round vectors of shape (n_labels, n_features) to int8."""
        scales = np.sqrt(np.mean(vectors * vectors, axis=0, dtype=np.float64))
        feature_scales = np.where(scales > 0, scales, 1).astype(np.float32)
        even = vectors / feature_scales
        label_scales = int8_scales(np.abs(even).max(axis=1))
        rounded = np.rint(even / label_scales[:, None]).astype(np.int8)
        return cls(_packed(rounded), label_scales, offsets, feature_scales, mean, squares)

    @property
    def n_labels(self) -> int:
        """The number of labels."""
        return len(self.scales)

    def vectors(self) -> Floats:
        """Return the vectors as float32, shape (n_labels, n_features)."""
        own = _unpacked(self.values, self.n_labels, len(self.feature_scales))
        found: Floats = own * self.scales[:, None] * self.feature_scales
        return found

    # Prediction

    @cached_property
    def engine(self) -> _engine.DenseVectors:
        """The vectors as the engine takes them, validated once."""
        n_pairs = _n_pairs(len(self.feature_scales))
        return _engine.DenseVectors(self.values, self.scales, self.offsets, n_pairs)

    @cached_property
    def _smallest_unit(self) -> float:
        """What rows are rounded to at least, so that offsets fit into integers too."""
        largest = float((np.abs(self.offsets) / self.scales).max(initial=0))
        return max(largest / _LARGEST_OFFSET, 1e-30)

    def _integers(self, rows: Rows) -> tuple[AnyArray, Floats]:
        """Return rows as integers, and what these are multiplied by; once for the same rows."""
        if self not in rows.memo:
            scaled = _dense(rows, slice(0, len(rows))) * self.feature_scales
            size = np.abs(scaled)
            largest, total = size.max(axis=1, initial=0), size.sum(axis=1)
            units = np.maximum(largest / _LARGEST, total / _LARGEST_TOTAL)
            units = np.maximum(units, self._smallest_unit).astype(np.float32)
            padded = np.zeros((len(rows), 2 * _n_pairs(scaled.shape[1])), np.int16)
            np.rint(scaled / units[:, None], out=scaled)
            padded[:, : scaled.shape[1]] = scaled
            rows.memo[self] = padded, units
        return rows.memo[self]  # type: ignore[no-any-return]

    def candidates(self, rows: Rows, n: int, n_jobs: int | None) -> Ints:
        """Return the n best labels of all."""
        ids = np.empty((len(rows), min(n, self.n_labels)), np.int64)
        scores = np.empty(ids.shape, np.float32)
        self.engine.highest(*self._integers(rows), ids, scores, threads(n_jobs))
        return ids

    def score(self, rows: Rows, ids: Ints, n_jobs: int | None) -> Floats:
        """Return the scores of labels, an array like `ids`."""
        scores = np.empty(ids.shape, np.float32)
        integers, units = self._integers(rows)
        if ids.shape[1] == self.n_labels and (ids == np.arange(self.n_labels)).all():
            self.engine.all_scores(integers, units, scores, threads(n_jobs))
        else:
            self.engine.scores(integers, units, ids, scores, threads(n_jobs))
        return scores

    def explain(self, rows: Rows, label: int) -> PartExplanation:
        """Return what every feature of the only row adds to the score of a label."""
        features, values = rows.entries(0)
        contributions = values * self._vector(label).astype(np.float64)[features]
        offset = float(self.offsets[label])
        score = float(contributions.sum()) + offset
        return PartExplanation(self.name, features, contributions, offset, score, "linear_score")

    def _vector(self, label: int) -> Floats:
        first = label - label % _LANES
        one = _unpacked(self._block(first), _LANES, len(self.feature_scales))[label - first]
        found: Floats = one * self.scales[label] * self.feature_scales
        return found

    def _block(self, first: int) -> AnyArray:
        size = 2 * _n_pairs(len(self.feature_scales))
        return self.values[first * size : (first + _LANES) * size]

    # Training

    @classmethod
    def fit(cls, given: LabelMatrix, context: Any) -> LabelMatrixPart:
        """Train the vectors of all labels."""
        if not context.dense:
            raise ValueError(
                "label_matrix needs dense rows, got a sparse matrix; use views or label_weights"
            )
        rng = np.random.default_rng(context.source.rng.randint(2**31))
        with _one_thread():
            stats = _Statistics.of(context)
            transform = stats.transform(context.source.held_out_rows())
            trainer = _Trainer.new(given, stats, transform, rng)
            given = given.filled(learning_rate=1.0 if transform.changes_axes else 0.3)
            highest = float(given.learning_rate)
            n_steps = given.epochs * -(-context.source.n_rows // _BATCH)
            for _ in range(given.epochs):
                for X, targets in _mini_batches(context.source.epoch()):
                    rate = highest * max(1 - trainer.n_steps / n_steps, _LAST_RATE)
                    trainer.step(transform(X), targets, rate)
        context.kept[cls.name] = trainer, transform, stats.mean, highest
        return cls._of(trainer, transform, stats.mean)

    @classmethod
    def _of(cls, trainer: _Trainer, transform: _Transform, mean: Floats) -> LabelMatrixPart:
        return cls.of_vectors(*transform.undone(trainer.W, trainer.b), mean, trainer.squares)

    def finish(self, context: Any) -> LabelMatrixPart:
        """Return the vectors after a pass over the held-out rows."""
        rows = context.source.held_out_rows()
        if rows is None or context.plan.early_stopping:
            return self
        trainer, transform, mean, rate = context.kept[self.name]
        order = trainer.rng.permutation(len(rows))
        with _one_thread():
            for X, targets in _mini_batches([(rows, order)]):
                trainer.step(transform(X), targets, _LAST_RATE * rate)
        return self._of(trainer, transform, mean)

    def grow(self, n_labels: int, n_new_columns: int) -> LabelMatrixPart:
        """Return the vectors with more labels, which nothing is predicted for yet."""
        more = n_labels - self.n_labels
        if not more:
            return self
        vectors = np.pad(self.vectors(), ((0, more), (0, 0)))
        offsets = np.pad(self.offsets, (0, more), constant_values=_NO_ROWS)
        squares = np.pad(self.squares, (0, more), constant_values=_NO_SQUARES)
        return self.of_vectors(vectors, offsets, self.mean, squares)

    def learn(self, context: Any) -> LabelMatrixPart:
        """Return the vectors after a further batch, with rows of the past."""
        wanted = context.labels_to_train()
        return (
            self._trained(context.rows_at_hand(), wanted, context.counts) if len(wanted) else self
        )

    def _trained(self, examples: Any, wanted: Ints, counts: Ints) -> LabelMatrixPart:
        """Return the vectors with those of some labels trained anew on a few rows."""
        transform = _Transform(self.mean, np.diag(self.feature_scales.astype(np.float64)), 1.0)
        with _one_thread():
            X = transform(_dense(examples.rows, slice(0, len(examples))))
            length = float(np.sqrt(np.mean(np.einsum("ij,ij->i", X, X)))) or 1.0
            transform, X = replace(transform, length=length), X / np.float32(length)
            W, b = transform.done(self.vectors(), self.offsets)
            Y = examples.label_matrix(self.n_labels)
            own = np.bincount(Y.indices, minlength=self.n_labels)
            W[wanted], b[wanted] = _start((Y.T @ X)[wanted], own[wanted])
            before, squares = (W.copy(), b.copy()), self.squares.copy()
            squares[wanted] = _NO_SQUARES
            rng = np.random.default_rng(int(counts.sum()))
            trainer = _Trainer(W, b, squares, counts, _n_sampled(AUTO, len(W)), rng)
            for _ in range(max(min(_ROWS // max(len(examples), 1), _PASSES), 1)):
                order = rng.permutation(len(examples))
                for rows, targets in _mini_batches([(examples, order)]):
                    trainer.step(transform(rows), targets, _FURTHER_RATE)
        # A few rows of other labels would cost more accuracy than they give.
        others = np.delete(np.arange(self.n_labels), wanted)
        W[others], b[others] = before[0][others], before[1][others]
        return self._of(trainer, transform, self.mean)

    # Files

    def state(self) -> tuple[dict[str, Any], Tensors]:
        """Return a JSON description and tensors."""
        names = ("values", "scales", "offsets", "feature_scales", "mean", "squares")
        return {}, {name: getattr(self, name) for name in names}

    @classmethod
    def from_state(cls, section: Described, sizes: Sizes, memory: Any = None) -> LabelMatrixPart:
        """Restore vectors from their `state`."""
        n_features = sizes.n_columns - sizes.intercept
        blocks = -(-sizes.n_labels // _LANES)
        known = {
            "n_labels": sizes.n_labels,
            "n_features": n_features,
            "n_values": blocks * _LANES * 2 * _n_pairs(n_features),
        }
        declared = {
            "values": Array("i1", ("n_values",), mapped=True),
            "scales": Array("f4", ("n_labels",), low=1e-30, high=1e30),
            "offsets": Array("f4", ("n_labels",), low=-1e30, high=1e30),
            "feature_scales": Array("f4", ("n_features",), low=1e-30, high=1e30),
            "mean": Array("f4", ("n_features",), low=-1e30, high=1e30),
            "squares": Array("f4", ("n_labels",), low=_NO_SQUARES, high=1e30),
        }
        tensors = section.tensors(declared, known)
        small = (np.array(tensors[name]) for name in list(declared)[1:])
        return cls(tensors["values"], *small)

    def describe(self) -> dict[str, Any]:
        """Return facts for ``ltls info``."""
        return {"label_matrix": f"{self.n_labels:,} × {len(self.feature_scales):,}"}

    def __getstate__(self) -> dict[str, Any]:
        computed = ("engine", "_smallest_unit")
        return {name: value for name, value in self.__dict__.items() if name not in computed}


# Vectors as the engine takes them


def _n_pairs(n_features: int) -> int:
    return -(-n_features // 2)


def _packed(vectors: AnyArray) -> AnyArray:
    """Return vectors such that two features of 16 labels follow one another."""
    n, d = vectors.shape
    blocks, pairs = -(-n // _LANES), _n_pairs(d)
    padded = np.zeros((blocks * _LANES, 2 * pairs), np.int8)
    padded[:n, :d] = vectors
    return padded.reshape(blocks, _LANES, pairs, 2).transpose(0, 2, 1, 3).ravel()


def _unpacked(values: AnyArray, n: int, d: int) -> AnyArray:
    blocks, pairs = -(-n // _LANES), _n_pairs(d)
    by_label = values.reshape(blocks, pairs, _LANES, 2).transpose(0, 2, 1, 3)
    found: AnyArray = by_label.reshape(blocks * _LANES, 2 * pairs)[:n, :d]
    return found


# Rows


def _dense(rows: Rows, some: slice | Ints) -> Floats:
    """Return some rows as float32, of unit length if the model's are."""
    X = rows.X[some]
    X = X.toarray() if rows.sparse else X
    found = np.array(X, np.float32)
    if rows.unit_length:
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        np.divide(found, lengths, out=found, where=lengths > 0)
    return found


class _Targets(NamedTuple):
    """The labels of some rows in CSR layout, and the weights of the rows."""

    ptr: Ints
    labels: Ints
    weights: Floats


def _mini_batches(batches: Any) -> Iterator[tuple[Floats, _Targets]]:
    """Yield mini-batches."""
    for examples, order in batches:
        of_rows = examples.row_weights()
        for first in range(0, len(order), _BATCH):
            rows = order[first : first + _BATCH]
            ptr, at = entries_of(examples.indptr, rows)
            targets = _Targets(ptr, examples.labels[at], of_rows[rows])
            yield _dense(examples.rows, rows), targets


@dataclass(frozen=True)
class _Transform:
    """Linear coordinates, in which rows have a mean square length of 1."""

    mean: Floats
    axes: AnyArray  # (n_features, n_features)
    length: float

    @property
    def changes_axes(self) -> bool:
        """Whether features are mixed."""
        return bool(np.count_nonzero(self.axes) > len(self.axes))

    def __call__(self, X: AnyArray) -> Floats:
        moved: Floats = (X - self.mean) @ (self.axes / self.length).astype(np.float32)
        return moved

    def undone(self, W: Floats, b: Floats) -> tuple[Floats, Floats]:
        """Return vectors and offsets for rows as they were."""
        own = W @ (self.axes.T / self.length).astype(np.float32)
        return own, b - own @ self.mean

    def done(self, V: Floats, offsets: Floats) -> tuple[Floats, Floats]:
        """Return vectors and offsets for rows in these coordinates, the inverse of `undone`."""
        W = np.linalg.solve(self.axes / self.length, V.T.astype(np.float64)).T
        return np.ascontiguousarray(W, np.float32), offsets + V @ self.mean


@dataclass(frozen=True)
class _Statistics:
    """What rows and labels are like."""

    mean: Floats
    covariance: Doubles
    sums: Floats  # of every label's rows, (n_labels, n_features)
    counts: Ints  # of these rows

    @classmethod
    def of(cls, context: Any) -> _Statistics:
        n_labels, d = context.n_labels, context.n_columns - context.intercept
        sums, counts = np.zeros((n_labels, d), np.float32), np.zeros(n_labels, np.int64)
        total, squares, n, sampled = np.zeros(d), np.zeros((d, d)), 0, 0
        step = -(-context.source.n_rows // _SAMPLE)
        for examples, order in context.source.in_order():
            for first in range(0, len(order), _BLOCK):
                part = examples.take(order[first : first + _BLOCK])
                X, Y = _dense(part.rows, slice(0, len(part))), part.label_matrix(n_labels)
                sums += Y.T @ X
                counts += np.bincount(Y.indices, minlength=n_labels)
                total += X.sum(axis=0, dtype=np.float64)
                n += len(X)
                some = X[::step]
                squares += some.T @ some
                sampled += len(some)
        mean = total / max(n, 1)
        covariance = squares / max(sampled, 1) - np.outer(mean, mean)
        return cls(mean.astype(np.float32), covariance, sums, counts)

    def transform(self, compared: Any) -> _Transform:
        """Return coordinates in which features are uncorrelated, of the same variance.

        Training converges faster in these. Rows of images, say, are told apart by the features of
        large variance alone: then training starts at a much worse place, and features stay.
        """
        variances, axes = np.linalg.eigh(self.covariance)
        variances = np.maximum(variances, 0)
        usual = max(float(variances.mean()), 1e-30)
        as_is = self._scaled(np.eye(len(axes)))
        even = self._scaled(axes / np.sqrt(variances + _SHRINKAGE * usual))
        if compared is None:
            return as_is
        some = compared.take(np.arange(len(compared))[:: -(-len(compared) // _COMPARED)])
        usable = self._precision(even, some) > _USABLE * self._precision(as_is, some)
        return even if usable else as_is

    def _scaled(self, axes: Doubles) -> _Transform:
        length = np.sqrt(max(float(((self.covariance @ axes) * axes).sum()), 1e-30))
        return _Transform(self.mean, axes, length)

    def start(self, transform: _Transform) -> tuple[Floats, Floats]:
        """Return the vectors and offsets that training starts with."""
        means = transform(self.sums / np.maximum(self.counts, 1)[:, None])
        return _start(means * self.counts[:, None].astype(np.float32), self.counts)

    def _precision(self, transform: _Transform, examples: Any) -> float:
        """Return P@1 at the start of training."""
        W, b = self.start(transform)
        X = transform(_dense(examples.rows, slice(0, len(examples))))
        best = np.concatenate(
            [(part @ W.T + b).argmax(axis=1) for part in np.array_split(X, len(X) // 64 + 1)]
        )
        return float(examples.contains(best[:, None]).mean())


def _start(sums: Floats, counts: Ints) -> tuple[Floats, Floats]:
    """Return vectors and offsets of labels whose rows add up to `sums`."""
    means = sums / (counts[:, None] + np.float32(1))
    offsets = np.where(counts > 0, -0.5 * _START * np.einsum("ij,ij->i", means, means), _NO_ROWS)
    return (_START * means).astype(np.float32), offsets.astype(np.float32)


def _n_sampled(given: int | str, n_labels: int) -> int:
    n = int(np.clip(n_labels // 4, _FEWEST, _MOST)) if isinstance(given, str) else given
    return min(n, n_labels)


class _Trainer:
    """Vectors and offsets that are trained, with one AdaGrad accumulator per label."""

    def __init__(
        self, W: Floats, b: Floats, squares: Floats, counts: Ints, n_sampled: int, rng: Any
    ) -> None:
        self.W, self.b, self.squares, self.n_sampled, self.rng = W, b, squares, n_sampled, rng
        self._offset_squares = squares.copy()
        self.n_steps = 0
        # How likely a label is to be missing among the labels of a mini-batch.
        self._absent = np.exp(-_BATCH * counts / max(int(counts.sum()), 1))

    @classmethod
    def new(
        cls, given: LabelMatrix, stats: _Statistics, transform: _Transform, rng: Any
    ) -> _Trainer:
        """Return vectors at the means of labels."""
        W, b = stats.start(transform)
        squares = np.full(len(W), _NO_SQUARES, np.float32)
        return cls(W, b, squares, stats.counts, _n_sampled(given.n_negatives, len(W)), rng)

    def step(self, X: Floats, targets: _Targets, rate: float) -> None:
        """Take a step on some rows: the gradient of the mean cross-entropy of their labels."""
        ptr, labels, weights = targets
        n_labels = len(self.W)
        if self.n_sampled >= n_labels:
            ids, chance = np.arange(n_labels), np.ones(n_labels)
        else:
            ids = np.union1d(labels, self.rng.integers(0, n_labels, self.n_sampled))
            missed = (1 - 1 / n_labels) ** self.n_sampled
            chance = 1 - missed * self._absent[ids]
        W = self.W[ids]
        scores = X @ W.T
        scores += self.b[ids] - np.log(chance).astype(np.float32)
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        per_row = np.diff(ptr)
        row_of = np.repeat(np.arange(len(X)), per_row)
        np.subtract.at(
            scores, (row_of, np.searchsorted(ids, labels)), (1 / per_row[row_of]).astype(np.float32)
        )
        scores *= (np.where(per_row > 0, weights, 0) / np.float32(_BATCH))[:, None]
        gradient, of_offsets = scores.T @ X, scores.sum(axis=0)
        self.squares[ids] += np.einsum("ij,ij->i", gradient, gradient) / X.shape[1]
        rates = np.float32(rate) / np.sqrt(self.squares[ids])
        self.W[ids] = W - rates[:, None] * gradient
        self._offset_squares[ids] += of_offsets * of_offsets
        self.b[ids] -= np.float32(rate) * of_offsets / np.sqrt(self._offset_squares[ids])
        self.n_steps += 1
