"""Training on rows in memory, and on batches that do not fit into memory together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import csr_array

from ..core.arrays import Floats, Ints
from ..features.front_ends import FrontEnd
from ..features.rows import Columns
from ..features.statistics import FeatureSettings, FeatureStats, is_mapped
from ..model.examples import Examples, balanced_weights
from ..model.fitted import Fitted
from ..model.labels import Labels, Targets
from .checkpoint import Checkpoint
from .context import How, Problem
from .data import InMemory, RowsToHoldOut, Source, Streamed
from .further import warm_start
from .pipeline import new_training, scale_steps, train
from .progress import phase
from .recipes import DatasetSize, Plan, plan_for
from .trainer import TrainerState

# Returns an iterator over all batches; the argument is True for the first pass.
Batches: TypeAlias = Callable[[bool], Iterator[tuple[Any, Targets]]]

ROWS_FOR_VECTORS = 32  # rows of a label from which its vector is computed, in a stream
_SAMPLE_VALUES = 1 << 25  # non-zeros of all sampled rows together
MAX_HELD_OUT = 50_000  # rows of a stream: P@1 has a standard error of at most 0.0023


def fit(
    how: How,
    X: Any,
    targets: Targets,
    sample_weight: Floats | None,
    front_end: FrontEnd,
    rng: Any,
    *,
    checkpoint: Checkpoint | None = None,
    previous: Fitted | None = None,
) -> Fitted:
    """Train a model on all rows; with `previous`, continue from that model's weights."""
    columns_of: FeatureSettings = front_end.settings
    stats = DatasetStats()
    may_scale = previous is None and columns_of.may_standardize(X)
    stats.add(X, targets, may_scale and (columns_of.standardize is True or not is_mapped(X)))
    problem = stats.problem(front_end)
    check_class_weight_labels(how.class_weight, problem.labels)
    if previous is not None:
        columns, training = warm_start(previous, how, problem.labels, X, targets)
        problem = stats.problem(front_end, previous.model.labels, columns)
    elif len(problem.labels) < 2:
        raise ValueError(
            f"y must hold at least 2 classes, got 1 class: {problem.labels.values[0]!r}; "
            "partial_fit can begin with one"
        )
    labels, rows = problem.labels, problem.columns.rows(X)
    examples = Examples.of(labels, rows, targets, sample_weight, how.class_weight)
    plan = plan_for(how.given, problem.size)
    if previous is None:
        with phase(bool(how.verbose), "clusters and paths of labels"):
            training = new_training(
                plan,
                problem,
                lambda unit: examples.label_sums(len(labels), unit)[0],
                rng,
                how.n_jobs,
            )
    else:
        plan = _as_before(plan, training)
        scale_steps(training, plan, 1.0 if plan.small_dense else problem.row_length)
    held_out = _held_out_rows(plan, examples, problem.counts, rng)
    state = TrainerState()
    if checkpoint is not None:
        checkpoint.add_rows(rows.X, examples.indptr, examples.labels, examples.weights)
        if checkpoint.resume:
            state, held_out, rng = checkpoint.restore(training, len(rows))
    source = InMemory(examples, held_out, bool(plan.trellises.shuffle), rng)
    return train(how, plan, problem, source, training, state, checkpoint)


def _as_before(plan: Plan, training: Any) -> Plan:
    """Return a plan with the trellises that a model has."""
    given = training.settings.filled()
    given.epochs = plan.trellises.epochs
    training.settings = given
    views = plan.views if training.shares_paths else None
    if training.shares_paths and plan.label_weights is None:
        raise ValueError("label_weights must stay on: the model has views")
    return replace(plan, trellises=given, views=views)


def _held_out_rows(plan: Plan, examples: Examples, counts: Ints, rng: Any) -> Ints:
    if not plan.n_held_out:
        return np.empty(0, np.int64)
    rows = np.sort(rng.permutation(len(examples))[: plan.n_held_out])
    return RowsToHoldOut(counts).select(examples, rows)


def check_class_weight_labels(class_weight: dict[Any, float] | str | None, labels: Labels) -> None:
    """Raise an error if class_weight has a label that does not occur."""
    for label in class_weight if isinstance(class_weight, dict) else ():
        if label not in labels:
            raise ValueError(f"class_weight must have labels that occur in y, got {label!r}")


# Streams


class DatasetStats:
    """Rows, features, labels and their counts over all batches, and the first rows of labels."""

    def __init__(self, sample_per_label: int = 0) -> None:
        self.features = FeatureStats()
        self.multilabel, self.target_format, self.mapped = False, "single", False
        self.n_columns: int | None = None
        self.n_pairs = 0
        self._seen = Labels()  # in order of appearance
        self._counts: Ints = np.zeros(0, np.int64)
        self._rows_by_labels: Ints = np.zeros(1, np.int64)  # rows with 0, 1, 2, … labels
        self._per_label, self._room = sample_per_label, _SAMPLE_VALUES
        self._sample: list[tuple[Any, Ints, Ints]] = []

    def add(self, X: Any, targets: Targets, scale: bool) -> Ints:
        """Add a batch; with `scale`, also what its features' means and deviations are.

        Returns the ids of its labels, in order of appearance.
        """
        if self.features.n_rows and targets.n_columns != self.n_columns:
            raise ValueError(
                "batches must all have indicator matrices of the same number of columns, or none, "
                f"got {targets.n_columns} columns after {self.n_columns}"
            )
        self.features.add(X, scale)
        self.mapped |= is_mapped(X)
        self.n_columns = targets.n_columns
        if targets.multilabel and not self.multilabel:
            self.multilabel, self.target_format = True, targets.format
        self._seen.add(targets)
        ids = self._seen.ids(targets)
        self.n_pairs += len(ids)
        before = np.pad(self._counts, (0, len(self._seen) - len(self._counts)))
        self._counts = before + np.bincount(ids, minlength=len(self._seen))
        per_row = np.bincount(np.diff(targets.indptr))
        longest = max(len(per_row), len(self._rows_by_labels))
        padded = [
            np.pad(each, (0, longest - len(each))) for each in (per_row, self._rows_by_labels)
        ]
        self._rows_by_labels = padded[0] + padded[1]
        if self._per_label and self._room > 0:
            self._keep(X, targets.indptr, ids, before)
        return ids

    def _keep(self, X: Any, indptr: Ints, ids: Ints, before: Ints) -> None:
        """Keep the rows that are among the first few of a label, which occurred `before` times."""
        order = np.argsort(ids, kind="stable")
        starts = np.searchsorted(ids[order], np.arange(len(before)))
        times = np.empty(len(ids), np.int64)
        times[order] = np.arange(len(ids)) - starts[ids[order]]
        early = before[ids] + times < self._per_label
        row_of = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        rows = np.unique(row_of[early])
        kept = np.isin(row_of, rows)
        sizes = np.diff(indptr)[rows]
        self._sample.append((X[rows], np.concatenate([[0], np.cumsum(sizes)]), ids[kept]))
        self._room -= int(getattr(self._sample[-1][0], "nnz", self._sample[-1][0].size))

    @property
    def n_labels(self) -> int:
        """The number of different labels."""
        return len(self._seen)

    @property
    def typical_labels(self) -> int:
        """The 99th percentile of the number of labels per row."""
        rank = np.ceil(0.99 * (self.features.n_rows - 1))
        return max(int(np.searchsorted(np.cumsum(self._rows_by_labels), rank, side="right")), 1)

    def problem(
        self, front_end: FrontEnd, labels: Labels | None = None, columns: Columns | None = None
    ) -> Problem:
        """Return what is to be learned: labels are sorted if they can be, unless given."""
        if labels is None:
            labels = Labels.sorted(self._targets(self._seen.values))
        self._order = self._seen.ids(self._targets(labels.values))
        columns = columns or self.features.columns(front_end.settings)
        stats = self.features
        size = DatasetSize(
            stats.n_rows,
            columns.n_columns,
            stats.n_values,
            len(labels),
            self.n_pairs,
            stats.sparse,
            self.multilabel,
            self.mapped,
        )
        return Problem(
            labels,
            front_end,
            columns,
            size,
            self._counts[self._order],
            self.target_format,
            self.typical_labels,
            stats.row_length(columns),
        )

    def label_sums(self, problem: Problem, unit_length: bool) -> csr_array:
        """Return the sum of every label's rows, of those that were kept."""
        new_id = np.argsort(self._order)
        total = csr_array((len(problem.labels), problem.columns.n_columns), dtype=np.float32)
        for X, indptr, ids in self._sample:
            part = Examples(problem.columns.rows(X), indptr, new_id[ids], None, True)
            total = csr_array(total + part.label_sums(len(problem.labels), unit_length)[0])
        self._sample = []
        return total

    def _targets(self, labels: Any) -> Targets:
        indptr = np.zeros(1, np.int64)
        return Targets(indptr, labels, self.multilabel, self.target_format, self.n_columns)


@dataclass(frozen=True)
class Encoder:
    """Turns features and targets of a batch into rows to train on."""

    labels: Labels
    columns: Columns
    multilabel: bool
    target_format: str
    class_weight: dict[Any, float] | None

    @classmethod
    def of(cls, problem: Problem, class_weight: dict[Any, float] | str | None) -> Encoder:
        """Return the encoder for all batches of a problem."""
        if isinstance(class_weight, str):
            weights = balanced_weights(problem.counts, problem.size.n_rows)
            class_weight = dict(zip(problem.labels.values, weights.tolist(), strict=True))
        multilabel, target_format = problem.size.multilabel, problem.target_format
        return cls(problem.labels, problem.columns, multilabel, target_format, class_weight)

    def __call__(self, X: Any, targets: Targets) -> Examples:
        """Return the rows of a batch."""
        same = replace(targets, multilabel=self.multilabel, format=self.target_format)
        part = Examples.of(self.labels, self.columns.rows(X), same, None, self.class_weight)
        if part.labels.min(initial=0) < 0:
            raise ValueError(
                "batches must be the same in every epoch, got the new label "
                f"{self.labels.first_unknown(same)!r}"
            )
        return part


# Returns the rows to train on, when it is known what is to be learned.
NewSource: TypeAlias = Callable[[Encoder, Plan, Problem, Any], Source]


def fit_stream(
    how: How,
    batches: Batches,
    front_end: FrontEnd,
    rng: Any,
    checkpoint: Checkpoint | None = None,
    new_source: NewSource | None = None,
    rows_for_vectors: int = ROWS_FOR_VECTORS,
) -> Fitted:
    """Train a model: one pass that collects statistics, then all epochs.

    `new_source` returns the rows to train on; by default, batches are iterated again.
    """
    columns_of: FeatureSettings = front_end.settings
    stats = DatasetStats(rows_for_vectors)
    with phase(bool(how.verbose), "counting rows and labels"):
        for X, targets in batches(True):
            ids = stats.add(X, targets, columns_of.may_standardize(X))
            if checkpoint is not None:
                checkpoint.add_rows(X, targets.indptr, ids)
    if stats.n_labels < 2:
        raise ValueError(f"training needs at least 2 different labels, got {stats.n_labels}")
    problem = stats.problem(front_end)
    check_class_weight_labels(how.class_weight, problem.labels)
    plan = plan_for(how.given, problem.size)
    sums = partial(stats.label_sums, problem)
    with phase(bool(how.verbose), "clusters and paths of labels"):
        training = new_training(plan, problem, sums, rng, how.n_jobs)
    encoder = Encoder.of(problem, how.class_weight)
    source = (new_source or partial(_streamed, batches))(encoder, plan, problem, rng)
    state = TrainerState()
    if checkpoint is not None:
        checkpoint.add_rows(problem.counts)
        if checkpoint.resume:
            n_rows = problem.size.n_rows
            state, source.held_out, source.rng = checkpoint.restore(training, n_rows)
    return train(how, plan, problem, source, training, state, checkpoint)


def _streamed(
    batches: Batches, encoder: Encoder, plan: Plan, problem: Problem, rng: Any
) -> Streamed:
    n_held_out = min(plan.n_held_out, MAX_HELD_OUT)
    n_rows, shuffle = problem.size.n_rows, bool(plan.trellises.shuffle)

    def examples() -> Iterator[Examples]:
        return starmap(encoder, batches(False))

    return Streamed(examples, n_rows, n_held_out, problem.counts, shuffle, rng)
