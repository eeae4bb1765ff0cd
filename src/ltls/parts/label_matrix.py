"""Label matrix: a dense vector for every label, for rows of dense features such as embeddings.

The score of a label is the inner product of its vector with the row, plus an offset.
`discriminant.py` computes the starting point of training, `label_trainer.py` takes the steps.
Features are first made uncorrelated and scaled to the same variance, unless that makes the nearest
mean a much worse prediction. Prediction scores all labels, with vectors rounded to int8.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ..core.arrays import Floats, Ints, Tensors
from ..core.declarations import Array, Described
from ..core.settings import AUTO, Integer, Number, Settings, setting, settings
from ..features.rows import Rows
from .base import PartExplanation, Sizes, register_part
from .dense_vectors import TENSORS, DenseVectors
from .discriminant import NO_ROWS, START, Statistics, Transform, one_thread, start_of
from .label_trainer import BATCH, NO_SQUARES, LabelTrainer, mini_batches, speed_up

MOST_FEATURES = 1 << 14  # their covariance has the square of this
_LAST_RATE = 0.02  # of the learning rate
_LOOK_AFTER = 2  # epochs, after which the learning rate may rise
# Training on a further batch and the memory: passes at most, rows of all passes, learning rate.
_PASSES, _ROWS, _FURTHER_RATE = 10, 20_000, 1.0
_WEIGHTS = (1.0, 0.0, 0.1, 0.25, 0.5, 2.0, 4.0, 16.0)  # beside parts of sparse features
_NUMBERS = ("square", "scale", "shrinkage")  # of a part
_SEEN_AS = 32  # rows that a new label is trained on at least, so that it is found among others


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
        The mean of AdaGrad's accumulators per training row of a label, for further training.
    scale, shrinkage : float
        What the means of new labels are multiplied by, and how many rows the mean of all rows
        counts as in these means.
    """

    name: ClassVar[str] = "label_matrix"
    settings: ClassVar[type[Settings]] = LabelMatrix
    scales_steps: ClassVar[bool] = True
    # Beside sparse features, the best other weights depend on whether dense ones help at all.
    chosen_first: ClassVar[bool] = True

    vectors: DenseVectors
    mean: Floats
    square: float
    scale: float = START
    shrinkage: float = 1.0

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
        with one_thread():
            stats = Statistics.of(context)
            held_out = context.source.held_out_rows()
            stats, transform = stats.transformed(held_out)
            W, b = stats.start(transform)
            squares = np.full(len(W), NO_SQUARES, np.float32)
            trainer = context.label_trainer(
                LabelTrainer(
                    W, b, squares, stats.counts, given.n_negatives, rng, context.options.n_jobs
                )
            )
            highest = given.filled(learning_rate=1.0 if transform.axes is not None else 0.3)
            rate = float(highest.learning_rate)
            n_steps = given.epochs * -(-context.source.n_rows // BATCH)

            def rate_at(step: int) -> float:
                return float(rate * max(1 - step / n_steps, _LAST_RATE))

            for epoch in range(given.epochs):
                looks = epoch == _LOOK_AFTER and not context.plan.few_rows
                if looks and given.learning_rate == AUTO:
                    rate *= speed_up(trainer, transform, context.source)
                trainer.run(mini_batches(context.source.epoch()), transform, rate_at)
            mixture = stats.mixture(trainer.found, transform, held_out)
            square = float(trainer.squares.sum(dtype=np.float64) / max(int(stats.counts.sum()), 1))
            W, b = trainer.found
            moved = stats.minus_start((W.copy(), b.copy()), transform)
            found = stats.mixed(mixture, moved, transform)
        # Rounding does not change the scores of labels on their mean rows.
        vectors = DenseVectors.rounded(*found, stats.means)
        part = cls(vectors, stats.mean, square, START * mixture.scale, stats.shrinkage)
        context.kept[part] = trainer, transform, stats, mixture, rate
        return part

    def finish(self, context: Any) -> LabelMatrixPart:
        """Return the vectors after a pass over the held-out rows, which count in the means, too."""
        rows = context.source.held_out_rows()
        if rows is None or context.plan.early_stopping:
            return self
        trainer, transform, stats, mixture, rate = context.kept.pop(self)
        order = trainer.rng.permutation(len(rows))
        with one_thread():
            trainer.run(mini_batches([(rows, order)]), transform, lambda _: _LAST_RATE * rate)
            moved = stats.minus_start(trainer.found, transform)
            stats.add(rows)
            W, b = stats.mixed(mixture, moved, transform)
        return replace(self, vectors=DenseVectors.rounded(W, b, stats.means))

    def _with(self, vectors: Floats, offsets: Floats, means: Floats) -> LabelMatrixPart:
        """Return the part with other vectors, rounded with the same feature scales as before."""
        scales = self.vectors.feature_scales
        return replace(
            self, vectors=DenseVectors.rounded(vectors, offsets, means.__getitem__, scales)
        )

    def grow(self, n_labels: int, n_new_columns: int) -> LabelMatrixPart:
        """Return the vectors with more labels, which are not predicted yet."""
        more = n_labels - len(self.vectors)
        if not more:
            return self
        vectors = np.pad(self.vectors.matrix(), ((0, more), (0, 0)))
        offsets = np.pad(self.vectors.offsets, (0, more), constant_values=NO_ROWS)
        means = np.broadcast_to(self.mean, vectors.shape)
        return self._with(vectors, offsets, means)

    def learn(self, context: Any) -> LabelMatrixPart:
        """Return the vectors with those of some labels retrained on a batch and stored rows."""
        wanted = context.labels_to_train()
        if not len(wanted):
            return self
        examples, counts = context.rows_at_hand(), context.counts
        transform = Transform(self.mean, 1 / self.vectors.feature_scales.astype(np.float64))
        with one_thread():
            X = transform(examples.rows.vectors.dense())
            length = float(np.sqrt(np.mean(np.einsum("ij,ij->i", X, X)))) or 1.0
            transform = replace(transform, scales=transform.scales * length)
            X /= np.float32(length)
            W, b = transform.from_original(self.vectors.matrix(), self.vectors.offsets)
            Y = examples.indicators(len(self.vectors))
            own = np.bincount(Y.indices, minlength=len(self.vectors))
            sums, counted = (Y.T @ X)[wanted], own[wanted]
            means = sums / np.maximum(counted, 1).astype(np.float32)[:, None]
            W[wanted], b[wanted] = start_of(sums, counted, self.scale, self.shrinkage)
            squares = np.maximum(self.square * counts, NO_SQUARES).astype(np.float32)
            squares[wanted] = NO_SQUARES
            rng = np.random.default_rng(int(counts.sum()))
            trainer = LabelTrainer(W, b, squares, counts, AUTO, rng, context.options.n_jobs)
            of_new = Y[:, wanted] @ (_SEEN_AS // np.maximum(own[wanted], 1))
            repeated = np.repeat(np.arange(len(examples)), np.maximum(of_new, 1).astype(np.int64))
            for _ in range(max(min(_ROWS // max(len(examples), 1), _PASSES), 1)):
                order = rng.permutation(repeated)
                trainer.run(mini_batches([(examples, order)]), transform, lambda _: _FURTHER_RATE)
        # Other labels keep their vectors: retraining them on a few rows would cost accuracy.
        vectors, offsets = self.vectors.matrix(), self.vectors.offsets.copy()
        vectors[wanted], offsets[wanted] = transform.to_original(W[wanted], b[wanted])
        every = np.tile(self.mean, (len(vectors), 1))
        every[wanted] += means * transform.scales.astype(np.float32)
        return self._with(vectors, offsets, every)

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
        numbers = {name: section.number(name, 0, 1e30) for name in _NUMBERS}
        return cls(vectors, mean, **numbers)

    def describe(self) -> dict[str, Any]:
        """Return facts for ``ltls info``."""
        n_features = len(self.vectors.feature_scales)
        return {"label_matrix": f"{len(self.vectors):,} × {n_features:,}"}
