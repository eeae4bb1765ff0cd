"""What parts are trained from: rows, wherever they come from, and what earlier parts have found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ..core.arrays import Ints
from ..features.rows import Columns
from ..model.examples import Examples
from ..parts.label_matrix import LabelTrainer
from ..parts.memory import StoredRows
from ..parts.trellises import TrellisPart
from .data import Problem, Source
from .progress import check_signals
from .recipes import Given, Plan
from .trainer import Workers
from .trellis_training import TrellisTraining


@dataclass(frozen=True)
class How:
    """What concerns all of training."""

    given: Given
    n_jobs: int | None = None
    verbose: int = 0
    class_weight: dict[Any, float] | str | None = None
    keep_on_interrupt: bool = True
    workers: Workers | None = None  # who trains; None is this process
    size_budget: int | None = None  # bytes of the model file


class TrainedTrellises:
    """Trellises that are trained already, and sizes: what every part is trained with."""

    check_signals = staticmethod(check_signals)

    def __init__(
        self, how: How, training: TrellisTraining, columns: Columns, counts: Ints, n_rows: int
    ) -> None:
        self.how, self.training, self.counts, self.n_rows = how, training, counts, n_rows
        self.n_labels, self.n_columns = len(counts), columns.n_columns
        self.intercept = columns.intercept
        self.n_vector_features = columns.n_beside or columns.n_columns - columns.intercept
        self._trellises: list[TrellisPart] | None = None

    def trellis_parts(self) -> list[TrellisPart]:
        """Return the trellises as they predict, one part per view."""
        if self._trellises is None:
            self._trellises = self.training.parts()
        return self._trellises

    def trained_further(self) -> None:
        """Take note that the trellises have changed."""
        self._trellises = None


class Context(TrainedTrellises):
    """Rows to train parts on.

    Parameters
    ----------
    how : How
    plan : Plan
    problem : Problem
    source : Source
        Rows to train on, and held-out rows.
    training : TrellisTraining
    """

    def __init__(
        self, how: How, plan: Plan, problem: Problem, source: Source, training: TrellisTraining
    ) -> None:
        super().__init__(how, training, problem.columns, problem.counts, problem.size.n_rows)
        self.plan, self.source = plan, source
        self.dense, self.several = not problem.size.sparse, problem.size.several
        self.row_length = problem.row_length
        self.kept: dict[Any, Any] = {}  # what parts need to finish, by part or name

    def label_trainer(self, trainer: LabelTrainer) -> LabelTrainer:
        """Return who trains the vectors of labels, from where a trainer of this process stands."""
        workers = self.how.workers
        return trainer if workers is None else workers.label_trainer(trainer)

    # Rows

    def blocks(self, n_values: int) -> Iterator[Examples]:
        """Yield all rows to train on in blocks of at most about `n_values` values."""
        parts: list[Examples] = []
        held = 0
        for examples, rows in self.source.in_order():
            part = examples.take(rows)
            if parts and held + part.rows.n_values > n_values:
                block, parts, held = Examples.concatenate(parts), [], 0
                yield block
                del block
            parts.append(part)
            held += part.rows.n_values
            del examples, part
        if any(map(len, parts)):
            yield Examples.concatenate(parts)

    def label_sums(self, held_out: bool = False) -> tuple[csr_array, Ints]:
        """Return the sum of every label's rows of unit length, and how many rows it has."""
        total = csr_array((self.n_labels, self.n_columns), dtype=np.float32)
        counts = np.zeros(self.n_labels, np.int64)
        for part in self._parts(held_out):
            sums, own = part.label_sums(self.n_labels)
            total, counts = sums if not counts.any() else csr_array(total + sums), counts + own
        total.sort_indices()
        return total, counts

    def memory(self, n_rows: int, held_out: bool = False) -> StoredRows:
        """Return the rows that a model keeps: so many, unless the user says how many."""
        assert self.plan.memory is not None
        capacity = int(self.plan.memory.filled(n_rows=n_rows).n_rows)
        kept, first_row = None, 0
        for part in self._parts(held_out):
            more = StoredRows.of(
                part.rows,
                part.indptr,
                part.labels,
                part.weights,
                capacity,
                self.counts,
                self.n_labels,
                first_row,
            )
            kept = more if kept is None else kept.merge(more, capacity)
            first_row += len(part)
        assert kept is not None
        return kept

    def _parts(self, held_out: bool) -> Iterator[Examples]:
        """Yield all rows to train on; with `held_out`, those that were held out, too."""
        if held_out or not len(self.source.held_out):
            yield from self.source.all_rows()
            return
        for examples, rows in self.source.in_order():
            yield examples.take(rows)
