"""Further training: later batches, replayed rows, new labels and new features.

Training on a batch of a single new label would teach a model to predict nothing else. So its rows
are mixed with rows from the model's memory: the less the batch resembles earlier ones, the more
rows are replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ..core.arrays import Floats, Ints
from ..core.settings import AUTO
from ..features.blocks import Blocks
from ..features.front_ends import FrontEnd
from ..features.numbers import FeatureSettings
from ..features.rows import Columns, Rows, used_features
from ..model.examples import Examples, class_weights
from ..model.labels import Labels, Targets
from ..model.model import MOST_ROWS, Fitted, Model, Provenance
from ..parts.memory import Memory, StoredRows, row_keys
from ..parts.trainable import SquaresSketch
from ..parts.trellis_training import TrellisTraining
from ..parts.trellises import FIXED, Trellises
from .choose import threshold_on
from .data import DatasetStats
from .progress import InterruptGuard
from .recipes import (
    REPLAYED,
    SEVERAL,
    Plan,
    plan_for_first_batch,
    usual_learning_rate,
)
from .trainer import TrainedTrellises, Trainer, TrainOptions

# Chosen on held-out rows, see docs/what_was_tried.md.
_ALWAYS = 64  # rows to replay with any batch
_PER_ROW = 60  # and for every row of a label that is more frequent in the batch than usual
_MOST_WEIGHT = 4.0  # of a replayed row
_MANY_ROWS = 0.5  # rows in a batch per earlier row of a label, to retrain its weights
_LONGEST_CURVE = 10_000  # passes whose loss is kept
_MIN_SCALED_ROWS = 100  # in a first batch, to tell whether features are unscaled
# Settings of trellises that may change in further training.
_FREE = (
    "learning_rate",
    "shuffle",
    "batch_size",
    "ranking_multiplier",
    "n_iter_no_change",
    "density",
)


def partial_fit(
    options: TrainOptions,
    fitted: Fitted | None,
    X: Any,
    targets: Targets,
    classes: list[Any],
    sample_weight: Floats | None,
    front_end: FrontEnd,
    rng: Any,
) -> Fitted:
    """Make one pass over a batch, which may have new labels; None starts a new model.

    The old model is not changed: a new object is returned.
    """
    if fitted is None:
        X = X.joined() if isinstance(X, Blocks) else X  # the model has only trellises
        fitted = _first_model(options, X, targets, classes, front_end, rng)
        classes = []
    if options.given.memory is False:
        fitted = fitted.without_rows()
    model, provenance = fitted.model, fitted.provenance
    targets.check_kind(model.multilabel)
    training = trainable(fitted, options).branch()
    labels = model.labels.extended(model.labels.unseen(targets, classes))
    old_rows = model.columns.rows(X)
    columns, n_new = model.columns.grow(X)
    rows = columns.rows(X) if n_new else old_rows
    n_labels = len(labels)
    weights = class_weights(options.class_weight, labels, provenance.counts, provenance.n_rows)
    batch = Examples.of(labels, rows, targets, sample_weight, weights)
    counts = np.bincount(batch.labels, minlength=n_labels)
    counts[: len(provenance.counts)] += provenance.counts
    n_rows = min(provenance.n_rows + len(batch), MOST_ROWS)
    counts = np.minimum(counts, n_rows)
    training.grow(n_labels, batch, old_rows, options.n_jobs)
    training.weights.add_features(n_new)
    memory = model.memory
    if memory is not None and n_new:
        memory = memory.grow(n_new, old_rows.X.shape[1] - 1)
    past = _replayed(memory, batch, counts, n_rows)
    examples = batch if past is None else Examples.concatenate([batch, past])
    if _of_vectors(model):
        # Of all rows: a batch of a tiny row must not enlarge the steps of replayed ones.
        training.weights.row_length = examples.rows.usual_length()
    loss = _one_pass(training, examples, len(batch), options, rng)
    memory = _kept(memory, batch, counts, provenance.n_rows, options)
    context = FurtherContext(options, training, columns, counts, n_rows, batch, memory)
    parts = []
    for part in model.parts:
        grown = part.grow(n_labels, n_new) if hasattr(part, "grow") else part
        parts.append(grown.learn(context) if hasattr(grown, "learn") else grown)
    per_row = int(np.quantile(np.diff(targets.indptr), 0.99, method="higher"))
    model = model.with_parts(
        parts,
        labels=labels,
        columns=columns,
        memory=memory,
        typical_labels=max(model.typical_labels, per_row),
    )
    n_epochs = min(provenance.n_epochs + 1, MOST_ROWS)
    if model.multilabel and not any(getattr(part, "keeps_threshold", False) for part in parts):
        model = _with_mean_threshold(model, batch, n_epochs, options.n_jobs)
    provenance = replace(
        provenance,
        n_rows=n_rows,
        counts=counts,
        n_epochs=n_epochs,
        held_out_precision=None,  # it was of the model before
        loss_curve=[*provenance.loss_curve[-_LONGEST_CURVE:], loss],
    )
    return Fitted(model, provenance, training)


def _one_pass(
    training: TrellisTraining, examples: Examples, n_new: int, options: TrainOptions, rng: Any
) -> float:
    """Train on new rows, mixed with the replayed rows after them; return the mean loss."""
    touched = used_features(examples.rows.X) if examples.rows.sparse else None
    training.weights.unshare(touched)
    order = np.arange(n_new)
    if training.settings.shuffle:
        order = rng.permutation(order)
    trainer = Trainer(training, InterruptGuard(False), options.n_jobs, options.verbose)
    loss = trainer.run_epoch([(examples, _mixed(order, len(examples)))]).rounded_loss
    training.check_finite([loss], touched)
    return loss


def _with_mean_threshold(
    model: Model, batch: Examples, n_batches: int, n_jobs: int | None
) -> Model:
    """Return the model with the mean of the best thresholds of all batches."""
    best = threshold_on(model, batch, n_jobs)
    before = model.calibration.threshold
    before = best if before is None else before
    return model.with_threshold(before + (best - before) / n_batches)


def _first_model(
    options: TrainOptions,
    X: Any,
    targets: Targets,
    classes: list[Any],
    front_end: FrontEnd,
    rng: Any,
) -> Fitted:
    """Return a model with weights of 0, for the first batch."""
    labels = Labels(classes)
    labels.add(targets)
    plan = plan_for_first_batch(options.given)
    given, stats = front_end.settings, DatasetStats()
    enough = given.standardize is True or X.shape[0] >= _MIN_SCALED_ROWS
    stats.add(X, targets, given.may_standardize(X) and enough)
    columns = replace(stats.features.columns(given), used=None)  # others may follow
    problem = stats.problem(front_end, labels, columns)
    rows = Examples.of(labels, columns.rows(X), targets)
    training = TrellisTraining.of_plan(
        plan,
        problem,
        lambda unit: rows.label_sums(len(labels), unit)[0](slice(None)),
        rng,
        options.n_jobs,
        min_paths=int(plan.trellises.width),
    )
    model = problem.new_model(plan, training.loss, len(training.codebooks), [training.as_trained()])
    provenance = Provenance(0, np.zeros(len(labels), np.int64), recipe=str(plan))
    return Fitted(model, provenance, training)


def trainable(fitted: Fitted, options: TrainOptions) -> TrellisTraining:
    """Return the trellises to train further, with their hyperparameters."""
    given = (
        options.given.trellises if isinstance(options.given.trellises, Trellises) else Trellises()
    )
    parts = fitted.model.trellises()
    _check_stays("loss", given.loss, parts[0].loss.name)
    training: TrellisTraining | None = fitted.training
    if training is None and "resume" in fitted.further:
        training = TrellisTraining.resumed(parts, *fitted.further["resume"])
    if training is None:
        sketch = None
        if "optimizer" in fitted.further:
            sketch = SquaresSketch(**fitted.further["optimizer"][1])
        settings = given.filled(
            width=parts[0].trellis.width,
            n_trellises=len(parts[0].codebooks),
            loss=parts[0].loss.name,
            epochs=1,
            learning_rate=usual_learning_rate(_of_vectors(fitted.model)),
            average=False,
            density=parts[0].weights.density,
        )
        return TrellisTraining.of_parts(settings, parts, sketch, fitted.provenance.n_epochs)
    known = training.settings
    for name in FIXED:
        _check_stays(name, getattr(given, name), getattr(known, name))
    settings = known.filled()
    for name in _FREE:
        if getattr(given, name) != AUTO:
            setattr(settings, name, getattr(given, name))
    if isinstance(given.assignment, str):  # the model keeps its codebooks
        settings.assignment = given.assignment
    return replace(training, settings=settings)


def _of_vectors(model: Model) -> bool:
    """Return whether trellises are trained with a part that scales their steps."""
    return not model.columns.n_beside and any(
        getattr(part, "scales_steps", False) for part in model.parts
    )


def _check_stays(name: str, wanted: Any, value: Any) -> None:
    if wanted not in (AUTO, value):
        raise ValueError(
            f"{name} must stay {value!r} in further training, got {wanted!r}; to change it, call "
            "fit with warm_start=False"
        )


def check_same_features(model: Model, given: FeatureSettings) -> None:
    """Raise an error if the settings of features differ from those of the model."""
    columns, kinds = model.columns, (type(given).__name__, type(model.front_end.settings).__name__)
    _check_stays("features", *kinds)
    _check_stays("fit_intercept", given.fit_intercept, columns.intercept)
    _check_stays("normalize", given.normalize, columns.unit_length)
    dense = columns if columns.beside is None else columns.beside
    _check_stays("standardize", given.standardize, dense.standardizer is not None)


def warm_start(
    previous: Fitted, options: TrainOptions, labels: Labels, X: Any, targets: Targets
) -> tuple[Columns, TrellisTraining]:
    """Return columns and trellises to train further on rows of the same classes."""
    model = previous.model
    targets.check_kind(model.multilabel)
    for label in labels.values:
        if label not in model.labels:
            raise ValueError(
                f"y must have the classes of the last fit, got the new label {label!r}; use "
                "partial_fit for new labels, or warm_start=False"
            )
    for label in model.labels.values:
        if label not in labels:
            raise ValueError(
                f"y must have the classes of the last fit, got no row of {label!r}; use "
                "partial_fit for some of the labels, or warm_start=False"
            )
    training = trainable(previous, options).branch()
    columns, n_new = model.columns.grow(X)
    training.weights.add_features(n_new)
    training.weights.unshare(None)
    return columns, training


def as_before(plan: Plan, training: TrellisTraining) -> Plan:
    """Return a plan with the trellises that a model has."""
    given = training.settings.filled()
    given.epochs = plan.trellises.epochs
    training.settings = given
    views = plan.views if training.shares_paths else None
    if training.shares_paths and plan.label_weights is None:
        raise ValueError(
            "label_weights must stay on, since the model has views; to leave both out, call fit "
            "with warm_start=False"
        )
    return replace(plan, trellises=given, views=views)


# Replay


def _replayed(
    memory: StoredRows | None, batch: Examples, counts: Ints, n_rows: int
) -> Examples | None:
    """Return stored rows to replay with a batch; `counts` and `n_rows` include the batch."""
    if memory is None or not len(memory) or not batch.row_weights().any():
        return None
    wanted = _ALWAYS + _PER_ROW * _n_unusual(batch, counts, n_rows)
    # Different rows in every call, for any random state.
    keys = row_keys(memory.keys.astype(np.int64) + ((n_rows % 2**31) << 32))
    past = _as_examples(memory.take(np.argsort(keys, kind="stable")[:wanted]), batch)
    # If the memory has fewer rows, each stands for several earlier ones.
    weight = min(wanted / len(past), (n_rows - len(batch)) / len(memory), _MOST_WEIGHT)
    if weight > 1:
        past.weights = past.row_weights() * np.float32(weight)
    return past


def _as_examples(memory: StoredRows, batch: Examples) -> Examples:
    rows = memory.rows_like(batch.rows)
    labels = memory.labels.astype(np.int64)
    return Examples(rows, memory.label_ptr, labels, memory.weights, batch.multilabel)


def _n_unusual(batch: Examples, counts: Ints, n_rows: int) -> int:
    """Return how many rows of the batch are more than expected of their labels.

    For an old label, twice its usual share of the rows and one more are expected; for a new label,
    none.
    """
    n = len(batch)
    own = np.bincount(batch.labels, minlength=len(counts))
    before = counts - own
    expected = 2 * n * before / max(n_rows - n, 1) + (before > 0)
    return int(min(np.ceil(np.maximum(own - expected, 0).sum()), n))


def _mixed(order: Ints, n_rows: int) -> Ints:
    """Return an order of all rows that spreads those of the batch evenly among the others."""
    n_batch, n_past = len(order), n_rows - len(order)
    places = np.concatenate([(np.arange(n) + 0.5) / max(n, 1) for n in (n_batch, n_past)])
    rows = np.concatenate([order, np.arange(n_batch, n_rows)])
    mixed: Ints = rows[np.argsort(places, kind="stable")]
    return mixed


def _kept(
    memory: StoredRows | None, batch: Examples, counts: Ints, first_row: int, options: TrainOptions
) -> StoredRows | None:
    """Return the memory with the rows of a batch added; the first rows of a model start it."""
    if options.given.memory is False or (memory is None and first_row):
        return None  # a batch alone is not worth replaying
    given = options.given.memory
    if isinstance(given, Memory) and given.n_rows != AUTO:
        capacity = int(given.n_rows)
    else:
        capacity = max(REPLAYED, 0 if memory is None else len(memory))
    first_late = len(counts) if memory is None else memory.first_late
    new = StoredRows.of(batch, capacity, counts, first_late, first_row)
    return new if memory is None else memory.merge(new, capacity)


class FurtherContext(TrainedTrellises):
    """The context in which parts learn a further batch, after the trellises.

    Parameters
    ----------
    options, training, columns, counts, n_rows
        As in `TrainedTrellises`; counts and number of all rows so far.
    batch : Examples
    stored : StoredRows or None
        The memory, with the rows of the batch.
    """

    def __init__(
        self,
        options: TrainOptions,
        training: TrellisTraining,
        columns: Columns,
        counts: Ints,
        n_rows: int,
        batch: Examples,
        stored: StoredRows | None,
    ) -> None:
        super().__init__(options, training, columns, counts, n_rows)
        self.batch, self.stored = batch, stored

    def label_sums(self) -> tuple[Callable[[slice], csr_array], Ints]:
        """Return the sums and numbers of the rows of labels; see `Examples.label_sums`."""
        return self.batch.label_sums(self.n_labels)

    def with_batch(self, stored: StoredRows, coordinates: Callable[[Rows], Rows]) -> StoredRows:
        """Return rows that are stored in some coordinates, with those of the batch."""
        batch = replace(self.batch, rows=coordinates(self.batch.rows))
        kept = _kept(stored, batch, self.counts, self.n_rows - len(batch), self.options)
        assert kept is not None  # `memory` is not False, or the part would not be here
        return kept

    def labels_to_train(self) -> Ints:
        """Return the labels of the batch that are new, or have many rows in it.

        Retraining an old label on a few rows would cost accuracy.
        """
        own = np.bincount(self.batch.labels, minlength=self.n_labels)
        before = self.counts - own
        first_late = self.n_labels if self.stored is None else self.stored.first_late
        late = (np.arange(self.n_labels) >= first_late) & (own > 0)
        return np.flatnonzero(late | (own >= _MANY_ROWS * np.maximum(before, 1)) & (own > 0))

    @property
    def several(self) -> bool:
        """Whether the available rows have several labels on average."""
        examples = self.rows_at_hand()
        return len(examples.labels) > SEVERAL * len(examples)

    def rows_at_hand(self) -> Examples:
        """Return the rows of the memory, which includes the batch; without a memory, the batch."""
        return self.batch if self.stored is None else _as_examples(self.stored, self.batch)
