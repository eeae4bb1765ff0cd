"""The trainer: epochs over batches, codebook updates, early stopping, with or without workers.

The other parts are trained afterwards, and may use the trained trellises.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from scipy.sparse import csr_array

from ..core.arrays import Ints
from ..features.rows import Columns
from ..parts.edge_weights import Weights
from ..parts.label_trainer import LabelTrainer
from ..parts.label_weights import LabelWeights
from ..parts.trellis_training import TrellisTraining
from ..parts.trellises import TrellisPart
from ..structure.codebook import Codebook
from .data import Batch, Source
from .progress import (
    EpochStats,
    InterruptGuard,
    log_epoch,
    phase,
    progress_bar,
    signals_deferred,
)

_CHUNK_SECONDS = 0.1  # between checks for Ctrl-C, and updates of the progress bar


@dataclass
class TrainerState:
    """The training state between two mini-batches, without the weights.

    Parameters
    ----------
    losses : list of float
        The mean loss of every epoch so far.
    best_precision : float
        The highest P@1 on the validation rows so far.
    n_no_change : int
        Epochs since then.
    best : (Weights, list of Codebook) or None
        Weights and codebooks at that time.
    completed : bool
        Whether training ran to its end without being interrupted.
    within : EpochStats or None
        Sums over the current epoch; None between two epochs.
    random : tuple or None
        The state of the random generator when that epoch began.
    """

    losses: list[float] = field(default_factory=list)
    best_precision: float = -1.0
    n_no_change: int = 0
    best: tuple[Weights, list[Codebook]] | None = None
    completed: bool = False
    within: EpochStats | None = None
    random: Any = None


class Workers(Protocol):
    """Processes or devices that train trellises, clusters of labels, and vectors of labels."""

    def run_epoch(self, training: TrellisTraining, source: Source, count_hits: bool) -> EpochStats:
        """Train all trellises on all rows of a source, in place, and advance its generator."""

    def train_clusters(
        self,
        given: LabelWeights,
        source: Source,
        clusters: list[tuple[Ints, Ints]],
        counts: Ints,
        row_length: float,
        without_held_out: bool,
        groups: Ints | None = None,
    ) -> list[tuple[csr_array, csr_array | None]]:
        """Train label weights, as `ltls.parts.label_weights.train_clusters` does.

        `counts` are the rows per label; with `without_held_out`, held-out rows are never trained
        on. With `groups`, the group of every label, classifiers are trained for groups.
        """

    def label_trainer(self, trainer: LabelTrainer) -> LabelTrainer:
        """Return the trainer of label vectors, given that of this process."""


@dataclass(frozen=True)
class TrainOptions:
    """Options of a whole training run: the parameters of an estimator, and who trains."""

    given: Any  # the parameters, a `ltls.estimators.parameters.Parameters`
    n_jobs: int | None = None
    verbose: int = 0
    class_weight: dict[Any, float] | str | None = None
    keep_on_interrupt: bool = True
    workers: Workers | None = None  # who trains; None is this process
    size_budget: int | None = None  # bytes of the model file


class Trainer:
    """Trains trellises.

    Parameters
    ----------
    training : TrellisTraining
        Trained in place.
    guard : InterruptGuard
    n_jobs : int or None
    verbose : int
    workers : Workers or None
        Workers that train on the rows of a source; None trains in this process.
    """

    def __init__(
        self,
        training: TrellisTraining,
        guard: InterruptGuard,
        n_jobs: int | None,
        verbose: int = 0,
        workers: Workers | None = None,
    ) -> None:
        self.training, self.guard, self.n_jobs = training, guard, n_jobs
        self.verbose, self.settings = bool(verbose), training.settings
        self.workers = workers
        self._within_step = False

    def fit(
        self, source: Source, state: TrainerState, early_stopping: bool, checkpoint: Any = None
    ) -> None:
        """Train all epochs, or until early stopping or Ctrl-C, and keep the best epoch.

        Training continues from `state`, which is updated after every chunk of mini-batches. It is
        saved to `checkpoint`, if given, after every epoch and when training is interrupted.
        """
        epochs, done = int(self.settings.epochs), len(state.losses)
        in_clusters = self.training.trellis.n_classes < self.training.n_labels
        found = "clusters" if in_clusters else "labels"
        with (
            self.guard(),
            self._saved_if_interrupted(source, state, checkpoint),
            progress_bar(self.verbose, epochs, source.n_rows, done, found) as show,
        ):
            for epoch in range(done, epochs):
                if early_stopping and state.n_no_change >= self.settings.n_iter_no_change:
                    break
                if state.within is None:
                    if epoch > 0:
                        self.training.update_codebooks(source.in_order(), self.n_jobs)
                    state.random, state.within = source.rng.get_state(), EpochStats()
                start = time.perf_counter()
                stats = self._train_on(source, state.within, partial(show, epoch + 1))
                with self._step():
                    self._end_epoch(state, stats)
                    precision = self._compare_with_best(source, state) if early_stopping else -1.0
                seconds = time.perf_counter() - start
                log_epoch(self.verbose, epoch + 1, epochs, stats, seconds, precision, found)
                if checkpoint is not None:
                    last = epoch + 1 == epochs or (
                        early_stopping and state.n_no_change >= self.settings.n_iter_no_change
                    )
                    checkpoint.save(self.training, state, source, now=last)
        if state.within is not None:  # interrupted: a partial epoch counts as one
            self._end_epoch(state, state.within)
        if state.best is not None:
            self.training.restore(state.best)
            state.best = None
        self.training.check_finite(state.losses)

    @contextmanager
    def _saved_if_interrupted(
        self, source: Source, state: TrainerState, checkpoint: Any
    ) -> Iterator[None]:
        """Write a checkpoint if Ctrl-C or another signal ends the block."""
        try:
            yield
        except Exception:
            raise
        except BaseException:
            is_whole = not self._within_step
            if self.workers is not None:  # they have done a whole epoch or none of it
                is_whole = self.training.weights.epochs == len(state.losses)
            if checkpoint is not None and is_whole:
                with phase(self.verbose, f"writing {checkpoint.path}"):
                    checkpoint.save(self.training, state, source, now=True)
            raise

    @contextmanager
    def _step(self) -> Iterator[None]:
        """Defer signals to the end of a block, when weights and sums are consistent again."""
        with signals_deferred():
            self._within_step = True
            yield
            self._within_step = False

    def _train_on(
        self, source: Source, stats: EpochStats, show: Callable[[EpochStats, int], None]
    ) -> EpochStats:
        """Train on all rows of a source, in this process or by workers; return the sums."""
        if self.workers is None:
            self._train(source.epoch(), stats, show)
            return stats
        stats = self.workers.run_epoch(self.training, source, self.verbose)
        show(stats, stats.examples)
        return stats

    def run_epoch(self, batches: Iterable[Batch]) -> EpochStats:
        """Make one pass over some rows; return the sums."""
        stats = EpochStats()
        self._train(batches, stats, lambda _stats, _rows: None)
        self.training.end_epoch()
        return stats

    def _train(
        self, batches: Iterable[Batch], stats: EpochStats, show: Callable[[EpochStats, int], None]
    ) -> None:
        """Train on rows in chunks of about a tenth of a second.

        Rows that are already in the sums are skipped. Between chunks, weights and sums are
        consistent.
        """
        batch_size, to_skip = self.settings.batch_size, stats.rows
        size = batch_size * max(1, 64 // batch_size)  # whole mini-batches
        for examples, order in batches:
            first = min(to_skip, len(order))
            to_skip -= first
            if first == len(order):
                continue
            task = self.training.task(examples)
            while first < len(order):
                chunk = order[first : first + size]
                start = time.perf_counter()
                with self._step():
                    sums = self.training.run(task, chunk, self.verbose, self.n_jobs)
                    stats.add(*sums, len(chunk))
                first += len(chunk)
                show(stats, len(chunk))
                if time.perf_counter() - start < _CHUNK_SECONDS / 2:
                    size *= 2

    def _end_epoch(self, state: TrainerState, stats: EpochStats) -> None:
        """Count an epoch, unless workers were interrupted and trained nothing."""
        state.within = None  # first, so that an epoch is never counted twice
        if self.workers is None or stats.examples:
            state.losses.append(stats.rounded_loss)
        if self.workers is None or not stats.examples:  # workers end it themselves
            self.training.end_epoch()

    def _compare_with_best(self, source: Source, state: TrainerState) -> float:
        """Keep the weights if P@1 on the validation rows is the best so far; return it."""
        rows = source.held_out_rows()
        if rows is None:
            return -1.0
        precision = self.training.precision(rows, self.n_jobs)
        if precision > state.best_precision:
            state.best_precision, state.n_no_change = precision, 0
            state.best = self.training.best()
        else:
            state.n_no_change += 1
        return precision


class TrainedTrellises:
    """The trained trellises and the sizes, which all other parts are trained with."""

    def __init__(
        self,
        options: TrainOptions,
        training: TrellisTraining,
        columns: Columns,
        counts: Ints,
        n_rows: int,
    ) -> None:
        self.options, self.training, self.counts, self.n_rows = options, training, counts, n_rows
        self.n_labels, self.n_columns = len(counts), columns.n_columns
        self.intercept = columns.intercept
        self.n_vector_features = columns.n_beside or columns.n_columns - columns.intercept
        self._trellises: list[TrellisPart] | None = None

    def trellis_parts(self) -> list[TrellisPart]:
        """Return the trellises to predict with, one part per view."""
        if self._trellises is None:
            self._trellises = self.training.parts()
        return self._trellises

    def trained_further(self) -> None:
        """Record that the trellises have changed."""
        self._trellises = None
