"""Rows that come in batches, as often as they are wanted: counted first, then learned from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from sklearn.utils import check_random_state
from sklearn.utils.random import sample_without_replacement

from .start import new_model
from .checkpoint import Checkpoint
from .auto import Size, plan_for
from ..model.labels import Labels, Targets
from .fit import THRESHOLD_ROWS, as_examples, learn_epochs
from ..io.readers import Dataset
from .trainer import Part, Standing
from ..model.examples import Examples, chosen, joined

if TYPE_CHECKING:
    from ..estimators.classifier import LTLSClassifier

Ints = npt.NDArray[np.int64]

_SAMPLE_PER_LABEL = 16  # rows that a codebook by similarity sees of a label
_SAMPLE_VALUES = 1 << 25  # and of all labels together
_MOST_HELD_OUT = 50_000  # rows; P@1 is then known to 0.002


def fit_in_batches(
    estimator: LTLSClassifier, batches: Any, checkpoint: Checkpoint | None = None
) -> None:
    """Do the work of `LTLSClassifier.fit_stream`."""
    if isinstance(batches, Iterator):
        raise TypeError(
            "batches must be iterable again for every epoch, as a list or a Stream is, "
            f"got a {type(batches).__name__}"
        )
    census = Census(sampled=estimator.assignment == "similarity")
    if checkpoint is not None:
        checkpoint.begin(estimator.get_params(deep=False))
    for X, targets in _pairs(estimator, batches, reset=True):
        census.add(X, targets)
        if checkpoint is not None:
            checkpoint.see(X, targets.indptr)
    labels, counts = census.labels()
    if len(labels) < 2:
        raise ValueError(f"training needs at least 2 different labels, got {len(labels)}")
    rng = check_random_state(estimator.random_state)
    size = Size(census.n_rows, census.n_features, census.n_values, len(labels))
    plan = plan_for(estimator, size, rescores=False)
    model = new_model(estimator, *census.sample(), labels, plan, rng, counts=counts)
    model.usual_labels = max(1, census.usual_labels())
    model.n_rows, model.counts = census.n_rows, counts
    estimator._learned = model
    class_weight = estimator.class_weight
    if class_weight == "balanced":
        weights = census.n_rows / (len(labels) * np.maximum(counts, 1))
        class_weight = dict(zip(labels.values, weights.tolist(), strict=True))

    def examples() -> Iterator[Examples]:
        for X, targets in _pairs(estimator, batches, reset=False):
            targets = replace(targets, multilabel=census.multilabel, form=census.form)
            part = as_examples(labels, X, targets, None, class_weight)
            if part.labels.min(initial=0) < 0:
                raise ValueError("batches must be the same in every epoch, got a new label")
            yield part

    held_out = min(plan.n_held_out, _MOST_HELD_OUT)
    lessons = Lessons(examples, census.n_rows, held_out, estimator.shuffle, rng)
    standing = Standing()
    if checkpoint is not None:
        checkpoint.see(counts)
        if checkpoint.resume:
            standing, lessons.held_out, lessons.rng = checkpoint.restore(model)
            lessons.keep_judges()

    def after_epoch(standing: Standing) -> None:
        if checkpoint is not None:
            checkpoint.save(model, standing, lessons.held_out, lessons.rng)

    n_learned = census.n_rows - held_out
    judges = lessons.judges
    learn_epochs(estimator, lessons, n_learned, judges, plan, standing, after_epoch)


def _pairs(estimator: LTLSClassifier, batches: Any, reset: bool) -> Iterator[tuple[Any, Targets]]:
    """Yield features and labels of every batch, checked."""
    for batch in batches:
        X, y = (batch.X, batch.targets) if isinstance(batch, Dataset) else batch
        yield estimator._pair(X, y, reset)
        reset = False


class Census:
    """What a first look at all batches tells.

    With `sampled`, it keeps the first rows of every label.
    """

    def __init__(self, sampled: bool) -> None:
        self.n_rows = self.n_features = self.n_values = 0
        self.multilabel = False
        self.form = "single"
        self.n_columns: int | None = None
        self._seen = Labels()  # in order of arrival
        self._counts: Ints = np.zeros(0, np.int64)
        self._rows_with: Ints = np.zeros(1, np.int64)  # so many labels
        self._sparse = False
        self._sampled = sampled
        self._sample: list[Examples] = []
        self._room = _SAMPLE_VALUES

    def add(self, X: Any, targets: Targets) -> None:
        """Count a batch in."""
        if self.n_rows and targets.n_columns != self.n_columns:
            raise ValueError(
                "batches must all have indicator matrices of the same number of columns, or none, "
                f"got {targets.n_columns} columns after {self.n_columns}"
            )
        self.n_rows += X.shape[0]
        self.n_values += int(X.nnz if hasattr(X, "indptr") else X.size)
        self.n_features, self.n_columns = X.shape[1], targets.n_columns
        self._sparse = hasattr(X, "indptr")
        if targets.multilabel and not self.multilabel:
            self.multilabel, self.form = True, targets.form
        self._seen.add(targets)
        ids = self._seen.ids(targets)
        before = _longer(self._counts, len(self._seen))
        self._counts = before + np.bincount(ids, minlength=len(self._seen))
        per_row = np.bincount(np.diff(targets.indptr))
        longest = max(len(per_row), len(self._rows_with))
        self._rows_with = _longer(self._rows_with, longest) + _longer(per_row, longest)
        if self._sampled and self._room > 0:
            rows = _first_of_labels(ids, targets.indptr, before)
            self._sample.append(chosen(Examples(X, targets.indptr, ids, None, True), rows))
            self._room -= int(getattr(self._sample[-1].X, "nnz", self._sample[-1].X.size))

    def labels(self) -> tuple[Labels, Ints]:
        """Return all labels, sorted if they can be, and how many rows each has."""
        labels = Labels.sorted(self._targets(self._seen.values))
        return labels, self._counts[self._seen.ids(self._targets(labels.values))]

    def usual_labels(self) -> int:
        """Return how many labels all but a hundredth of the rows have at most."""
        rank = np.ceil(0.99 * (self.n_rows - 1))
        return int(np.searchsorted(np.cumsum(self._rows_with), rank, side="right"))

    def sample(self) -> tuple[Any, Targets]:
        """Return the rows that were kept, none of them if none were to be."""
        if not self._sample:
            none = np.empty((0, self.n_features), np.float32)
            return csr_array(none) if self._sparse else none, self._targets([])
        rows = joined(self._sample)
        values = self._seen.values
        return rows.X, self._targets([values[i] for i in rows.labels], rows.indptr)

    def _targets(self, labels: Any, indptr: Ints | None = None) -> Targets:
        bounds = np.zeros(1, np.int64) if indptr is None else indptr
        return Targets(bounds, labels, self.multilabel, self.form, self.n_columns)


class Lessons:
    """Batches as the parts of an epoch, but for some rows that are held out.

    During the first epoch it keeps the rows that judge the model: those held out, or else some that
    are spread over all batches.
    """

    def __init__(
        self,
        batches: Callable[[], Iterator[Examples]],
        n_rows: int,
        n_held_out: int,
        shuffle: bool,
        rng: Any,
    ) -> None:
        self._batches, self._shuffle, self.rng = batches, shuffle, rng
        self.held_out = np.sort(sample_without_replacement(n_rows, n_held_out, random_state=rng))
        self._step = -(-n_rows // THRESHOLD_ROWS)
        self._kept: list[Examples] = []
        self._is_first = True

    def __call__(self) -> Iterator[Part]:
        """Yield what to learn from in the next epoch."""
        for examples, rows in self._parts():
            yield examples, self.rng.permutation(rows) if self._shuffle else rows

    def keep_judges(self) -> None:
        """Look for the rows that judge, where the first epoch is over."""
        for _ in self._parts():
            pass

    def _parts(self) -> Iterator[Part]:
        first, self._is_first = self._is_first, False
        number = 0
        for examples in self._batches():
            rows = np.arange(len(examples))
            begin, end = np.searchsorted(self.held_out, (number, number + len(rows)))
            held_out = self.held_out[begin:end] - number
            if first:
                sample = rows[-number % self._step :: self._step]
                self._kept.append(chosen(examples, held_out if len(self.held_out) else sample))
            number += len(rows)
            yield examples, np.delete(rows, held_out)

    def judges(self) -> Part | None:
        """Return the rows that were kept; None before there are any."""
        if not self._kept:
            return None
        self._kept = [joined(self._kept)]
        return self._kept[0], np.arange(len(self._kept[0]))


def _longer(counts: Ints, length: int) -> Ints:
    return np.pad(counts, (0, length - len(counts)))


def _first_of_labels(ids: Ints, indptr: Ints, before: Ints) -> Ints:
    """Return the rows in which a label is one of the first few times, given how often it was."""
    order = np.argsort(ids, kind="stable")
    starts = np.searchsorted(ids[order], np.arange(len(before)))
    times = np.empty(len(ids), np.int64)
    times[order] = np.arange(len(ids)) - starts[ids[order]]
    early = before[ids] + times < _SAMPLE_PER_LABEL
    row_of = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    rows: Ints = np.unique(row_of[early])
    return rows
