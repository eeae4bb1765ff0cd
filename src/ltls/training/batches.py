"""Where training rows come from: memory, or batches that are iterated again in every epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.utils.random import sample_without_replacement

from ..model.examples import Batch, Examples

Ints: TypeAlias = npt.NDArray[np.int64]

THRESHOLD_ROWS = 4_000  # for choosing the multi-label threshold


class BatchSource(Protocol):
    """Training rows, some of which may be held out for validation."""

    held_out: Ints
    rng: Any

    @property
    def n_rows(self) -> int:
        """The number of rows to train on."""

    def epoch(self) -> Iterator[Batch]:
        """Yield all training rows, in a new order if they are to be shuffled."""

    def in_order(self) -> Iterator[Batch]:
        """Yield all training rows in their own order."""

    def validation_rows(self) -> Batch | None:
        """Return the held-out rows for early stopping; None if there are none."""

    def evaluation_rows(self) -> Batch | None:
        """Return the validation rows, or else training rows; None if no row was read yet."""


class InMemory:
    """All rows at once.

    Parameters
    ----------
    examples : Examples
    held_out : array of int
        Rows that are not trained on.
    validate : bool
        Whether the held-out rows are for evaluation; otherwise training rows are.
    shuffle : bool
    rng : RandomState
    """

    def __init__(
        self, examples: Examples, held_out: Ints, validate: bool, shuffle: bool, rng: Any
    ) -> None:
        self.examples, self.held_out, self.rng = examples, held_out, rng
        trained = np.ones(len(examples), bool)
        trained[held_out] = False
        self.rows = np.flatnonzero(trained)
        self._validate, self._shuffle = validate, shuffle

    @property
    def n_rows(self) -> int:
        """The number of rows to train on."""
        return len(self.rows)

    def epoch(self) -> Iterator[Batch]:
        """Yield all training rows as one batch."""
        yield self.examples, self.rng.permutation(self.rows) if self._shuffle else self.rows

    def in_order(self) -> Iterator[Batch]:
        """Yield all training rows as one batch, in their own order."""
        yield self.examples, self.rows

    def validation_rows(self) -> Batch | None:
        """Return the held-out rows, if they are for validation."""
        if not self._validate or not len(self.held_out):
            return None
        return self.examples, self.held_out

    def evaluation_rows(self) -> Batch:
        """Return the validation rows, or else all training rows."""
        return self.validation_rows() or (self.examples, self.rows)


class Streamed:
    """Batches that are iterated again in every epoch.

    The first pass keeps the rows for evaluation: those held out, and a sample that is spread evenly
    over all batches.

    Parameters
    ----------
    batches : callable
        Returns an iterator over all batches.
    n_rows : int
        Rows of all batches together.
    n_held_out : int
    counts : array of shape (n_labels,)
        Rows per label.
    shuffle : bool
        Shuffle the rows within each batch.
    rng : RandomState
    """

    def __init__(
        self,
        batches: Callable[[], Iterator[Examples]],
        n_rows: int,
        n_held_out: int,
        counts: Ints,
        shuffle: bool,
        rng: Any,
    ) -> None:
        self._batches, self._shuffle, self.rng = batches, shuffle, rng
        self._n_all, self._counts = n_rows, counts
        self.held_out = np.sort(sample_without_replacement(n_rows, n_held_out, random_state=rng))
        self._step = -(-n_rows // THRESHOLD_ROWS)
        self._validation: list[Examples] = []
        self._sample: list[Examples] = []
        self._is_first = True

    @property
    def n_rows(self) -> int:
        """The number of rows to train on, estimated before the first epoch."""
        return self._n_all - len(self.held_out)

    def epoch(self) -> Iterator[Batch]:
        """Yield the training rows of every batch, shuffled within the batch."""
        for examples, rows in self.in_order():
            yield examples, self.rng.permutation(rows) if self._shuffle else rows

    def in_order(self) -> Iterator[Batch]:
        """Yield the training rows of every batch."""
        first, self._is_first = self._is_first, False
        keep = RowsToHoldOut(self._counts)
        number = 0
        for examples in self._batches():
            rows = np.arange(len(examples))
            begin, end = np.searchsorted(self.held_out, (number, number + len(rows)))
            held_out = keep.select(examples, self.held_out[begin:end] - number)
            if first:
                self._validation.append(examples.take(held_out))
                self._sample.append(examples.take(rows[-number % self._step :: self._step]))
            number += len(rows)
            yield examples, np.delete(rows, held_out)

    def keep_evaluation_rows(self) -> None:
        """Make the pass that keeps the rows for evaluation, when training is resumed."""
        for _ in self.in_order():
            pass

    def validation_rows(self) -> Batch | None:
        """Return the held-out rows that the first pass has kept."""
        return _concatenated(self._validation)

    def evaluation_rows(self) -> Batch | None:
        """Return the validation rows, or else the sample."""
        return self.validation_rows() or _concatenated(self._sample)


def blocks_of(batches: Iterable[Batch], n_values: int) -> Iterator[Examples]:
    """Join the rows of batches to blocks of at most about `n_values` values."""
    parts: list[Examples] = []
    held = 0
    for examples, rows in batches:
        part = examples.take(rows)
        values = int(getattr(part.X, "nnz", part.X.size))
        if parts and held + values > n_values:
            block, parts, held = Examples.concatenate(parts), [], 0
            yield block
            del block
        parts.append(part)
        held += values
        del examples, part
    if any(map(len, parts)):
        yield Examples.concatenate(parts)


def _concatenated(parts: list[Examples]) -> Batch | None:
    """Concatenate parts in place and return all of their rows; None if there are none."""
    if not any(map(len, parts)):
        return None
    parts[:] = [Examples.concatenate(parts)]
    return parts[0], np.arange(len(parts[0]))


class RowsToHoldOut:
    """Selects rows for validation such that every label keeps at least one training row.

    Rows whose labels are never trained on cannot be predicted, and so say nothing about when to
    stop.

    Parameters
    ----------
    counts : array of shape (n_labels,)
        Rows per label.
    """

    def __init__(self, counts: Ints) -> None:
        self._left = counts.copy()

    def select(self, examples: Examples, rows: Ints) -> Ints:
        """Return those of some rows that can be held out."""
        selected = []
        for row in rows.tolist():
            labels = examples.labels[examples.indptr[row] : examples.indptr[row + 1]]
            if (self._left[labels] > 1).all():
                self._left[labels] -= 1
                selected.append(row)
        return np.array(selected, np.int64)
