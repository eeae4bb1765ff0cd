"""The training data: labels and features to learn, and rows, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import csr_array
from sklearn.utils.random import sample_without_replacement

from ..core.arrays import Doubles, Floats, Ints, pointers
from ..features.blocks import Blocks
from ..features.front_ends import FrontEnd
from ..features.numbers import FeatureStats
from ..features.rows import Columns, is_mapped
from ..model.examples import Examples, class_weights
from ..model.labels import Labels, Targets
from ..model.model import Model
from ..parts.calibration import Calibrator
from ..parts.label_trainer import BATCH
from ..structure.losses import Loss
from .recipes import DatasetSize, Plan

# Some examples, and the order in which to train on their rows.
Batch: TypeAlias = tuple[Examples, Ints]

EVALUATED_ROWS = 4000  # training rows to choose a threshold on, if none are held out
_MAX_HELD_OUT = 50_000  # rows of several batches: P@1 has a standard error of at most 0.0023
_CONVERTED = 1 << 20  # values of memory-mapped rows that are converted at a time
_SAMPLE_VALUES = 1 << 25  # non-zeros of the rows that label vectors are computed from


@dataclass(frozen=True)
class Problem:
    """The learning problem: labels, features, and the format of the targets."""

    labels: Labels
    front_end: FrontEnd
    columns: Columns
    size: DatasetSize
    counts: Ints
    target_format: str
    typical_labels: int
    row_length: float  # root mean square

    def class_weights(self, given: dict[Any, float] | str | None) -> Doubles | None:
        """Return the weight of every label, None if all are 1."""
        for label in given if isinstance(given, dict) else ():
            if label not in self.labels:
                raise ValueError(
                    f"class_weight must contain only labels that occur in y, got {label!r}"
                )
        return class_weights(given, self.labels, self.counts, self.size.n_rows)

    def examples(
        self,
        X: Any,
        targets: Targets,
        sample_weight: Floats | None = None,
        class_weight: Doubles | None = None,
    ) -> Examples:
        """Return the training rows of a batch; `class_weight` has the weight of every label."""
        same = replace(targets, multilabel=self.size.multilabel, format=self.target_format)
        rows = self.columns.rows(X)
        examples = Examples.of(self.labels, rows, same, sample_weight, class_weight)
        if examples.labels.min(initial=0) < 0:
            raise ValueError(
                "batches must be the same in every pass, got the new label "
                f"{self.labels.first_unknown(same)!r}"
            )
        return examples

    def new_model(self, plan: Plan, loss: Loss, n_trellises: int, parts: list[Any]) -> Model:
        """Return a model of some parts, with default weights and no calibration."""
        multilabel, scale = self.size.multilabel, 1.0 if plan.reranks else 1 / n_trellises
        return Model(
            self.labels,
            self.front_end,
            self.columns,
            tuple(parts),
            tuple(plan.weights_to_try(part)[0] for part in parts),
            multilabel,
            self.target_format,
            loss.probabilistic,
            Calibrator(multilabel and loss.independent_edges, scale),
            typical_labels=self.typical_labels,
        )


class DatasetStats:
    """Statistics of all batches: features, labels, their counts, and the first rows of labels."""

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
        """Add a batch; with `scale`, also the means and deviations of its features.

        Returns the ids of its labels, in order of appearance.
        """
        if self.features.n_rows and targets.n_columns != self.n_columns:
            raise ValueError(
                "batches must all have indicator matrices with the same number of columns, or "
                f"none, got {targets.n_columns} columns after {self.n_columns}"
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
        """Keep the first few rows of every label; labels have occurred `before` times."""
        order = np.argsort(ids, kind="stable")
        starts = np.searchsorted(ids[order], np.arange(len(before)))
        times = np.empty(len(ids), np.int64)
        times[order] = np.arange(len(ids)) - starts[ids[order]]
        early = before[ids] + times < self._per_label
        row_of = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        rows = np.unique(row_of[early])
        kept = np.isin(row_of, rows)
        sizes = np.diff(indptr)[rows]
        some = (X.sparse if isinstance(X, Blocks) else X)[rows]
        self._sample.append((some, pointers(sizes), ids[kept]))
        self._room -= int(getattr(some, "nnz", some.size))

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
        """Return the learning problem; unless given, labels are sorted if possible."""
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
            columns.n_beside,
            columns.intercept,
        )
        return Problem(
            labels,
            front_end,
            columns,
            size,
            np.append(self._counts, 0)[self._order],  # given labels need not occur
            self.target_format,
            self.typical_labels,
            stats.row_length(columns),
        )

    def label_sums(self, problem: Problem, unit_length: bool) -> csr_array:
        """Return the sum of the kept rows of every label, once: the rows are forgotten."""
        new_id = np.argsort(self._order)
        total = csr_array((len(problem.labels), problem.columns.n_columns), dtype=np.float32)
        columns = problem.columns.alone()
        for X, indptr, ids in self._sample:
            part = Examples(columns.rows(X), indptr, new_id[ids], None, True)
            sums, _ = part.label_sums(len(problem.labels), unit_length)
            total = csr_array(total + sums(slice(None)))
        self.forget_rows()
        return total

    def forget_rows(self) -> None:
        """Free the memory of the kept rows."""
        self._sample.clear()

    def _targets(self, labels: Any) -> Targets:
        indptr = np.zeros(1, np.int64)
        return Targets(indptr, labels, self.multilabel, self.target_format, self.n_columns)


class Source:
    """Training rows in batches, some of which are held out. Rows in memory are one batch.

    Parameters
    ----------
    batches : callable
        Returns an iterator over all batches.
    problem : Problem
    plan : Plan
        How many rows are held out, and whether rows are shuffled within their batch.
    rng : RandomState
    at_once : bool, default=False
        Whether there is one batch.

    Attributes
    ----------
    held_out : array of int
        Numbers of the rows that are not trained on, increasing. Rows that a label needs are trained
        on nevertheless; see `RowsToHoldOut`.
    whole : Examples or None
        All rows, if they are in memory.
    """

    whole: Examples | None = None

    def __init__(
        self,
        batches: Callable[[], Iterable[Examples]],
        problem: Problem,
        plan: Plan,
        rng: Any,
        at_once: bool = False,
    ) -> None:
        self._batches, self.n_all, self._counts = batches, problem.size.n_rows, problem.counts
        self.rng, self._shuffle = rng, bool(plan.trellises.shuffle)
        self._is_checked = False  # whether all of the held-out rows can be held out
        self._kept: Examples | None = None
        n = plan.n_held_out if at_once else min(plan.n_held_out, _MAX_HELD_OUT)
        numbers = sample_without_replacement(self.n_all, n, random_state=rng) if n else []
        self.held_out: Ints = np.sort(np.asarray(numbers, np.int64))

    @classmethod
    def in_memory(cls, examples: Examples, problem: Problem, plan: Plan, rng: Any) -> Source:
        """Return the source of rows that are all in memory."""
        made = cls(lambda: [examples], problem, plan, rng, at_once=True)
        made.whole = examples
        return made

    def whole_to_train(self) -> Examples:
        """Return all rows, if they are in memory; held-out ones have weight 0."""
        assert self.whole is not None
        if not len(self.held_out):
            return self.whole
        self.held_out_rows()  # which of them can be held out
        weights = self.whole.row_weights().copy()
        weights[self.held_out] = 0
        return replace(self.whole, weights=weights)

    @property
    def n_rows(self) -> int:
        """The number of rows to train on; approximate before the first pass."""
        return self.n_all - len(self.held_out)

    def epoch(self) -> Iterator[Batch]:
        """Yield the training rows of every batch, reshuffled if the plan says so."""
        for examples, rows in self.in_order():
            order = self.rng.permutation(rows) if self._shuffle else rows
            if not examples.rows.converts:
                yield examples, order
                continue
            size = max(_CONVERTED // examples.rows.n_columns // BATCH, 1) * BATCH
            for first in range(0, len(order), size):
                some = examples.take(order[first : first + size])
                yield some, np.arange(len(some))

    def in_order(self) -> Iterator[Batch]:
        """Yield the training rows of every batch in their original order.

        The first pass checks and keeps the held-out rows.
        """
        is_checked = self._is_checked or not len(self.held_out)
        keep = None if is_checked else RowsToHoldOut(self._counts)
        kept: list[Examples] = []
        numbers: list[Ints] = []
        for examples, own, first in self._own(self.held_out):
            if keep is not None:
                own = keep.select(examples, own)
                kept.append(examples.take(own))
                numbers.append(own + first)
            yield examples, np.delete(np.arange(len(examples)), own)
        if keep is not None:
            self.held_out = np.concatenate([np.empty(0, np.int64), *numbers])
            self._kept, self._is_checked = Examples.concatenate(kept), True

    def _own(self, numbers: Ints) -> Iterator[tuple[Examples, Ints, int]]:
        """Yield batches, which of some rows they contain, and the number of their first row."""
        first = 0
        for examples in self._batches():
            begin, end = np.searchsorted(numbers, (first, first + len(examples)))
            yield examples, numbers[begin:end] - first, first
            first += len(examples)

    def all_rows(self) -> Iterable[Examples]:
        """Return an iterator over all batches, including the held-out rows."""
        return self._batches()

    def held_out_rows(self) -> Examples | None:
        """Return the held-out rows; None if there are none."""
        if self._kept is None and len(self.held_out):
            self._is_checked = False
            for _ in self.in_order():
                pass
        return self._kept if len(self.held_out) else None

    def evaluation_rows(self) -> Examples:
        """Return the held-out rows, or else rows spread evenly over all batches."""
        if (held_out := self.held_out_rows()) is not None:
            return held_out
        numbers = np.arange(0, self.n_all, -(-self.n_all // EVALUATED_ROWS))
        return Examples.concatenate([part.take(own) for part, own, _ in self._own(numbers)])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": None}  # not needed by workers


class RowsToHoldOut:
    """Selects rows to hold out such that every label keeps at least one training row.

    Rows whose labels are never trained on cannot be predicted and carry no information.

    Parameters
    ----------
    counts : array of shape (n_labels,)
        Rows per label.
    """

    def __init__(self, counts: Ints) -> None:
        self._left = counts.copy()

    def select(self, examples: Examples, rows: Ints) -> Ints:
        """Return which of the given rows can be held out."""
        selected = []
        for row in rows.tolist():
            labels = examples.labels[examples.indptr[row] : examples.indptr[row + 1]]
            if (self._left[labels] > 1).all():
                self._left[labels] -= 1
                selected.append(row)
        return np.array(selected, np.int64)
