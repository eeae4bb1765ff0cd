"""The trainer: epochs over batches, codebook updates, early stopping."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..core import _engine
from ..core.arrays import threads
from ..features.rows import engine_features
from ..linear.trainable import TrainableWeights
from ..model.examples import Batch, Examples
from ..model.fitted import FittedModel
from ..model.threshold import best_threshold
from ..structure.codebook import TableCodebook
from .auto import Plan
from .batches import THRESHOLD_ROWS, BatchSource
from .checkpoint import Checkpoint
from .config import TrainConfig
from .interrupt import InterruptGuard, check_time
from .label_scores import label_score_sums
from .progress import EpochStats, log_epoch, progress_bar
from .state import TrainerState

Ints: TypeAlias = npt.NDArray[np.int64]

_CHUNK_SECONDS = 0.1  # between checks for Ctrl-C and time limits, and updates of the progress bar
_FEW_THRESHOLD_ROWS = 100  # after an interruption


class Trainer:
    """Trains the weights of a model. It knows models, examples and hyperparameters, no estimator.

    Parameters
    ----------
    model : FittedModel
        Trained in place.
    config : TrainConfig
    """

    def __init__(self, model: FittedModel, config: TrainConfig) -> None:
        assert model.trainable is not None
        self.model, self.config = model, config
        self.trainable: TrainableWeights = model.trainable
        self.guard = InterruptGuard(config.keep_on_interrupt)
        model.frozen = model.embedding = None

    def fit(
        self,
        source: BatchSource,
        plan: Plan,
        state: TrainerState,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        """Train for all epochs, or until early stopping or Ctrl-C, and keep the best epoch.

        Parameters
        ----------
        source : BatchSource
        plan : Plan
        state : TrainerState
            Where to continue; updated after every epoch.
        checkpoint : Checkpoint or None
            Where to save the state after every epoch.
        """
        model, config = self.model, self.config
        done, validate = len(state.losses), plan.early_stopping
        with (
            self.guard(),
            progress_bar(bool(config.verbose), plan.epochs, source.n_rows, done) as show,
        ):
            for epoch in range(done, plan.epochs):
                if validate and state.n_no_change >= config.n_iter_no_change:
                    break
                if epoch > 0:
                    self._update_codebooks(source)
                state.losses.append(0.0)
                start = time.perf_counter()
                stats = self.run_epoch(source.epoch(), state.losses, partial(show, epoch + 1))
                precision = self._compare_with_best(source, state) if validate else -1.0
                seconds = time.perf_counter() - start
                log_epoch(bool(config.verbose), epoch + 1, plan.epochs, stats, seconds, precision)
                if checkpoint is not None:
                    checkpoint.save(model, state, source.held_out, source.rng)
        if state.best_paths is not None:
            self._restore_paths(state.best_paths)
        if state.best_weights is not None:
            self.trainable.load(state.best_weights, config.l1)
            state.best_weights = None
        model.loss_curve = state.losses
        model.n_epochs = len(state.losses)
        if not np.isfinite(model.weights.values.sum(dtype=np.float64)):
            raise ValueError(
                "the weights became infinite: scale the features, or use a smaller learning_rate"
            )

    def choose_threshold(self, batch: Batch | None) -> float:
        """Return the multi-label threshold with the best micro-averaged F1 on some rows."""
        if batch is None:
            return 0.0
        examples, rows = batch
        rows = rows[:: -(-len(rows) // THRESHOLD_ROWS)]
        limits = (len(rows), _FEW_THRESHOLD_ROWS)
        for limit in limits[self.guard.interrupted :]:
            with self.guard():
                return self._best_threshold(examples, rows[:limit])
        return 0.0

    def _best_threshold(self, examples: Examples, rows: Ints) -> float:
        k = self.model.n_candidates
        ids, scores = self.model.topk(examples.X[rows], k, self.config.n_jobs)
        n_true = int(np.diff(examples.indptr)[rows].sum())
        return best_threshold(scores, examples.contains(rows, ids), n_true)

    def run_epoch(
        self,
        batches: Iterable[Batch],
        losses: list[float],
        show: Callable[[EpochStats, int], None] = lambda _stats, _rows: None,
    ) -> EpochStats:
        """Train on all rows in chunks of about a tenth of a second; set the last loss."""
        config, trainable, stats = self.config, self.trainable, EpochStats()
        size = config.batch_size * max(1, 64 // config.batch_size)  # whole mini-batches
        try:
            for examples, order in batches:
                task = self._task(examples)
                first = 0
                while first < len(order):
                    chunk = order[first : first + size]
                    check_time()
                    start = time.perf_counter()
                    stats.add(*self._run_chunk(task, chunk))
                    first += len(chunk)
                    show(stats, len(chunk))
                    if time.perf_counter() - start < _CHUNK_SECONDS / 2:
                        size *= 2
        finally:
            # The last digits of the sum depend on the sizes of the chunks, which depend on timing.
            losses[-1] = float(f"{stats.mean_loss:.8g}")
            trainable.epochs += 1
            self._assign_remaining_labels()
        return stats

    def _task(self, examples: Examples) -> _engine.TrainTask:
        """Pass the examples and the paths of their labels to the engine, which validates them."""
        features = engine_features(examples.X, self.trainable.intercept, self.trainable.unit_length)
        return _engine.TrainTask(
            self.model.trellis.engine,
            features,
            examples.indptr,
            examples.labels,
            self._paths(examples.labels),
            examples.weights,
            [book.engine for book in self._tables],
            loss=self.model.loss.name,
            multilabel=examples.multilabel,
            ranking_multiplier=self.config.ranking_multiplier,
        )

    def _run_chunk(self, task: _engine.TrainTask, rows: Ints) -> tuple[float, float, int]:
        config, trainable = self.config, self.trainable
        result = task.run(
            trainable.values,
            trainable.squares,
            trainable.sums,
            rows,
            step=trainable.step,
            learning_rate=config.learning_rate / trainable.row_length,
            # As in the authors' code, the soft threshold applies from the second epoch on.
            threshold=config.l1 if trainable.epochs > 0 else 0.0,
            count_hits=bool(config.verbose),
            batch_size=config.batch_size,
            n_jobs=threads(config.n_jobs),
        )
        trainable.step += len(rows)
        return result

    def _compare_with_best(self, source: BatchSource, state: TrainerState) -> float:
        """Keep the weights if P@1 on the validation rows is the best so far; return it."""
        batch = source.validation_rows()
        if batch is None:
            return -1.0
        weights = self.trainable.for_prediction(self.config.l1)
        precision = self.model.precision(*batch, self.config.n_jobs, weights)
        if precision > state.best_precision:
            state.best_precision, state.n_no_change = precision, 0
            if state.best_weights is None:
                state.best_weights = weights.copy()
            else:
                state.best_weights.values[:] = weights.values
            state.best_paths = self._table_paths()
        else:
            state.n_no_change += 1
        return float(precision)

    # Codebooks

    @property
    def _tables(self) -> list[TableCodebook]:
        return [book for book in self.model.codebooks if isinstance(book, TableCodebook)]

    def _paths(self, labels: Ints) -> Ints:
        """Return paths, shape (n_trellises, n_labels); −1 for labels without a path yet."""
        paths = np.full((len(self.model.codebooks), len(labels)), -1, np.int64)
        for row, codebook in zip(paths, self.model.codebooks, strict=True):
            known = labels < codebook.n_labels
            row[known] = codebook.path_of(labels[known])
        return paths

    def _update_codebooks(self, source: BatchSource) -> None:
        """Let the codebook policy move labels to better paths."""
        if self.config.policy is None:
            return
        model, n_jobs = self.model, self.config.n_jobs
        every = np.arange(len(model.labels))
        moved = self.config.policy.between_epochs(
            model.trellis,
            [book.path_of(every) for book in model.codebooks],
            lambda: label_score_sums(model, source.in_order(), n_jobs),
            n_jobs,
        )
        if moved is not None:
            n_paths = model.trellis.n_classes
            model.codebooks[:] = [TableCodebook(n_paths, paths) for paths in moved]

    def _table_paths(self) -> Ints | None:
        tables = self._tables
        return np.stack([book.paths for book in tables]) if tables else None

    def _restore_paths(self, paths: Ints) -> None:
        for number, (book, row) in enumerate(zip(self._tables, paths, strict=True)):
            if not np.array_equal(book.paths, row):
                self.model.codebooks[number] = TableCodebook(book.n_paths, row)

    def _assign_remaining_labels(self) -> None:
        """Give free paths to labels that no row had."""
        n_labels = len(self.model.labels)
        for book in self._tables:
            known = min(book.n_labels, n_labels)
            missing = np.flatnonzero(book.path_of(np.arange(known)) < 0).tolist()
            for label in [*missing, *range(known, n_labels)]:
                book.assign(label, book.free_path())
