"""The trainer: epochs over batches, codebook updates, early stopping."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..parts.edge_weights import Weights
from ..structure.codebook import Codebook
from .data import Batch, Source
from .progress import EpochStats, InterruptGuard, log_epoch, progress_bar
from .trellis_training import TrellisTraining
from .workers import Workers

_CHUNK_SECONDS = 0.1  # between checks for Ctrl-C, and updates of the progress bar


@dataclass
class TrainerState:
    """The state of training between two epochs, besides the weights.

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
    """

    losses: list[float] = field(default_factory=list)
    best_precision: float = -1.0
    n_no_change: int = 0
    best: tuple[Weights, list[Codebook]] | None = None
    completed: bool = False


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
        Who trains on the rows of a source; None is this process.
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

    def fit(
        self, source: Source, state: TrainerState, early_stopping: bool, checkpoint: Any = None
    ) -> None:
        """Train for all epochs, or until early stopping or Ctrl-C, and keep the best epoch.

        `state` says where to continue, and is updated after every epoch; `checkpoint`, if given, is
        where it is saved.
        """
        epochs, done = int(self.settings.epochs), len(state.losses)
        with (
            self.guard(),
            progress_bar(self.verbose, epochs, source.n_rows, done) as show,
        ):
            for epoch in range(done, epochs):
                if early_stopping and state.n_no_change >= self.settings.n_iter_no_change:
                    break
                if epoch > 0:
                    self.training.update_codebooks(source.in_order(), self.n_jobs)
                state.losses.append(0.0)
                start = time.perf_counter()
                stats = self._train_on(source, state.losses, partial(show, epoch + 1))
                precision = self._compare_with_best(source, state) if early_stopping else -1.0
                seconds = time.perf_counter() - start
                log_epoch(self.verbose, epoch + 1, epochs, stats, seconds, precision)
                if checkpoint is not None:
                    checkpoint.save(self.training, state, source.held_out, source.rng)
        if state.best is not None:
            self.training.come_back(state.best)
            state.best = None
        self.training.check_finite(state.losses)

    def _train_on(
        self, source: Source, losses: list[float], show: Callable[[EpochStats, int], None]
    ) -> EpochStats:
        """Train on all rows of a source, here or by workers; set the last loss."""
        if self.workers is None:
            return self.run_epoch(source.epoch(), losses, show)
        try:
            stats = self.workers.run_epoch(self.training, source, self.verbose)
        except BaseException:
            losses.pop()  # nothing of this epoch was kept
            self.training.end_epoch()
            raise
        losses[-1] = float(f"{stats.mean_loss:.8g}")
        show(stats, stats.examples)
        return stats

    def run_epoch(
        self,
        batches: Iterable[Batch],
        losses: list[float],
        show: Callable[[EpochStats, int], None] = lambda _stats, _rows: None,
    ) -> EpochStats:
        """Train on all rows in chunks of about a tenth of a second; set the last loss."""
        stats, batch_size = EpochStats(), self.settings.batch_size
        size = batch_size * max(1, 64 // batch_size)  # whole mini-batches
        try:
            for examples, order in batches:
                task = self.training.task(examples)
                first = 0
                while first < len(order):
                    chunk = order[first : first + size]
                    start = time.perf_counter()
                    stats.add(*self.training.run(task, chunk, self.verbose, self.n_jobs))
                    first += len(chunk)
                    show(stats, len(chunk))
                    if time.perf_counter() - start < _CHUNK_SECONDS / 2:
                        size *= 2
        finally:
            # The last digits of the sum depend on the sizes of the chunks, which depend on timing.
            losses[-1] = float(f"{stats.mean_loss:.8g}")
            self.training.end_epoch()
        return stats

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
