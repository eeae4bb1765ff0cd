"""Where training rows come from: memory, or batches that are read again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeAlias

import numpy as np
from sklearn.utils.random import sample_without_replacement

from ..core.arrays import Ints
from ..model.examples import Examples

EVALUATED_ROWS = 4000  # training rows that a threshold is chosen on, if none are held out
# Some examples, and the order in which to train on their rows.
Batch: TypeAlias = tuple[Examples, Ints]


class Source(Protocol):
    """Training rows, some of which are held out."""

    held_out: Ints  # numbers of rows
    rng: Any

    @property
    def n_rows(self) -> int:
        """The number of rows to train on."""

    def epoch(self) -> Iterator[Batch]:
        """Yield all training rows, in a new order if they are to be shuffled."""

    def in_order(self) -> Iterator[Batch]:
        """Yield all training rows in their own order."""

    def all_rows(self) -> Iterator[Examples]:
        """Yield all rows in their own order, also those that are held out."""

    def held_out_rows(self) -> Examples | None:
        """Return the held-out rows; None if there are none."""

    def evaluation_rows(self) -> Examples | None:
        """Return the held-out rows, or else some training rows."""


class InMemory:
    """All rows at once.

    Parameters
    ----------
    examples : Examples
    held_out : array of int
        Rows that are not trained on.
    shuffle : bool
    rng : RandomState
    """

    def __init__(self, examples: Examples, held_out: Ints, shuffle: bool, rng: Any) -> None:
        self.examples, self.held_out, self.rng = examples, held_out, rng
        self._shuffle = shuffle

    @property
    def rows(self) -> Ints:
        """The rows to train on."""
        trained = np.ones(len(self.examples), bool)
        trained[self.held_out] = False
        return np.flatnonzero(trained)

    @property
    def n_rows(self) -> int:
        """The number of rows to train on."""
        return len(self.examples) - len(self.held_out)

    def epoch(self) -> Iterator[Batch]:
        """Yield all training rows as one batch."""
        yield self.examples, self.rng.permutation(self.rows) if self._shuffle else self.rows

    def in_order(self) -> Iterator[Batch]:
        """Yield all training rows as one batch, in their own order."""
        yield self.examples, self.rows

    def all_rows(self) -> Iterator[Examples]:
        """Yield all rows at once."""
        yield self.examples

    def held_out_rows(self) -> Examples | None:
        """Return the held-out rows."""
        return self.examples.take(self.held_out) if len(self.held_out) else None

    def evaluation_rows(self) -> Examples:
        """Return the held-out rows, or else some training rows."""
        held_out = self.held_out_rows()
        if held_out is not None:
            return held_out
        return self.examples.take(self.rows[:: -(-self.n_rows // EVALUATED_ROWS)])


class Streamed:
    """Batches that are iterated again in every epoch.

    The first pass keeps the held-out rows, and a sample that is spread evenly over all batches.

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
        self._step = -(-n_rows // EVALUATED_ROWS)
        self._kept: list[Examples] = []
        self._sample: list[Examples] = []
        self._is_first = True

    @property
    def n_rows(self) -> int:
        """The number of rows to train on, about."""
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
                self._kept.append(examples.take(held_out))
                self._sample.append(examples.take(rows[-number % self._step :: self._step]))
            number += len(rows)
            yield examples, np.delete(rows, held_out)

    def all_rows(self) -> Iterator[Examples]:
        """Yield all batches."""
        return self._batches()

    def held_out_rows(self) -> Examples | None:
        """Return the held-out rows."""
        return self._joined(self._kept)

    def evaluation_rows(self) -> Examples | None:
        """Return the held-out rows, or else the sample."""
        return self.held_out_rows() or self._joined(self._sample)

    def _joined(self, parts: list[Examples]) -> Examples | None:
        if self._is_first:  # training was resumed after the last epoch
            for _ in self.in_order():
                pass
        if not any(map(len, parts)):
            return None
        parts[:] = [Examples.concatenate(parts)]
        return parts[0]


class RowsToHoldOut:
    """Selects rows to hold out such that every label keeps at least one training row.

    Rows whose labels are never trained on cannot be predicted, and so tell nothing.

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
