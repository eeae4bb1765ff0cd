"""What parts are trained from: rows, wherever they come from, and what earlier parts have found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ..core.arrays import Floats, Ints
from ..core.settings import AUTO
from ..features.rows import Columns
from ..model.examples import Examples
from ..parts.label_matrix import LabelTrainer
from ..parts.label_weights import LabelWeightPart, LabelWeights, train_clusters, usual_cost
from ..parts.memory import StoredRows
from ..parts.trellises import TrellisPart
from .data import Batch, Problem, Source
from .progress import check_signals
from .recipes import Given, Plan
from .trainer import Workers
from .trellis_training import TrellisTraining

_COST_ROWS = 1000  # that the precision of the trellises is measured on
_BLOCK_VALUES = 1 << 24  # of rows of a stream that label weights are trained on at a time


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
        self.plan, self.source, self._problem = plan, source, problem
        self.dense = not problem.size.sparse
        self.kept: dict[str, Any] = {}  # what parts need to finish, by name
        self._final: dict[LabelWeightPart, LabelWeightPart] = {}

    def label_trainer(self, trainer: LabelTrainer) -> LabelTrainer:
        """Return who trains the vectors of labels, from where a trainer of this process stands."""
        workers = self.how.workers
        return trainer if workers is None else workers.label_trainer(trainer)

    # Label weights

    def train_label_weights(
        self, given: LabelWeights, clusters: list[tuple[Ints, Ints]]
    ) -> list[LabelWeightPart]:
        """Train label weights for several clusterings; see `train_clusters`.

        They have not seen the held-out rows: `final` returns those that have.
        """
        precision = 1.0
        several = self._problem.size.several
        if given.cost == AUTO and not several:
            rows = self.source.evaluation_rows()
            some = rows.take(np.arange(len(rows))[:: -(-len(rows) // _COST_ROWS)])
            precision = self.training.precision(some, self.how.n_jobs)
        given = given.filled(cost=usual_cost(several, precision))
        if self.how.workers is not None:
            found = self.how.workers.train_clusters(
                given,
                self.source,
                clusters,
                self.counts,
                self._problem.row_length,
                self.plan.early_stopping,
            )
        elif self.source.whole is not None:
            found = self._train_in_memory(self.source.whole, given, clusters)
        else:
            found = self._train_in_blocks(given, clusters)
        parts = []
        for (_, members), (W, without) in zip(clusters, found, strict=True):
            place = np.argsort(members)
            final = LabelWeightPart.of_matrix(W[place], self.intercept)
            part = final
            if without is not None:
                part = LabelWeightPart.of_matrix(without[place], self.intercept)
            self._final[part] = final
            parts.append(part)
        return parts

    def final(self, part: LabelWeightPart) -> LabelWeightPart:
        """Return label weights that were trained on the held-out rows, too."""
        return self._final.get(part, part)

    def _train_in_memory(
        self, examples: Examples, given: LabelWeights, clusters: list[tuple[Ints, Ints]]
    ) -> list[tuple[csr_array, csr_array | None]]:
        held_out = self.source.held_out
        weights: Floats | None = examples.weights
        if self.plan.early_stopping:  # these rows stay unseen
            weights = examples.row_weights().copy()
            weights[held_out] = 0
        return train_clusters(
            given,
            examples.rows,
            examples.indptr,
            examples.labels,
            weights,
            clusters,
            n_labels=self.n_labels,
            held_out=None if self.plan.early_stopping else held_out,
            row_length=self._problem.row_length,
            check=check_signals,
            n_jobs=self.how.n_jobs,
        )

    def _train_in_blocks(
        self, given: LabelWeights, clusters: list[tuple[Ints, Ints]]
    ) -> list[tuple[csr_array, csr_array | None]]:
        """Train on blocks of rows that do not fit into memory together.

        Every block is trained from the weights of the blocks before: block coordinate descent in
        the dual problem (Yu, Hsieh, Chang and Lin 2010), once over all blocks.
        """
        found: list[Any] = [None] * len(clusters)
        seen = 0
        for block in joined(self.source.in_order(), _BLOCK_VALUES):
            seen += len(block)
            for number, (ptr, members) in enumerate(clusters):
                before = None
                if found[number] is not None:
                    before = found[number][np.argsort(members)]
                [(found[number], _)] = train_clusters(
                    given,
                    block.rows,
                    block.indptr,
                    block.labels,
                    block.weights,
                    [(ptr, members)],
                    n_labels=self.n_labels,
                    initial=before,
                    # Weights grow from block to block: those that will be large are still small.
                    scale=min(seen / max(self.source.n_rows, 1), 1.0),
                    row_length=self._problem.row_length,
                    check=check_signals,
                    n_jobs=self.how.n_jobs,
                )
        return [(each, None) for each in found]

    # Rows

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


def joined(batches: Iterator[Batch], n_values: int) -> Iterator[Examples]:
    """Join the rows of batches to blocks of at most about `n_values` values."""
    parts: list[Examples] = []
    held = 0
    for examples, rows in batches:
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
