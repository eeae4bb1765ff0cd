"""Passing over the rows: chunks that can be interrupted, progress, and when to stop."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .. import _engine
from ..core.arrays import threads
from ..structure.policies import Codebook
from ..structure.codebook import TableCodebook
from ..linear.weights import LinearModel
from ..model.examples import Examples
from ..linear.trainable import Learner
from ..features.rows import engine_features
from ..structure.trellis import Trellis

Ints = npt.NDArray[np.int64]

_CHUNK_SECONDS = 0.1  # between looks at keyboard and clock, and updates of the progress bar
_deadline: ContextVar[float] = ContextVar("deadline", default=math.inf)


class OutOfTimeError(Exception):
    """Learning went on for longer than `time_limit` allows."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Let what learns in this block, in this thread, end by `OutOfTimeError` when time is up."""
    token = _deadline.set(time.perf_counter() + seconds)
    try:
        yield
    finally:
        _deadline.reset(token)


def check_time() -> None:
    """Raise `OutOfTimeError` if the `time_limit` is over."""
    if time.perf_counter() > _deadline.get():
        raise OutOfTimeError


# Some examples, and the order in which to learn from their rows.
Part: TypeAlias = tuple[Examples, Ints]


@dataclass
class Pass:
    """What one pass over the rows gave."""

    loss: float = 0.0
    hits: float = 0.0
    examples: int = 0

    def add(self, loss: float, hits: float, examples: int) -> None:
        """Count a chunk's examples in."""
        self.loss += loss
        self.hits += hits
        self.examples += examples

    @property
    def mean_loss(self) -> float:
        """The loss per example."""
        return self.loss / max(self.examples, 1)

    @property
    def precision(self) -> float:
        """How often the best path was right just before its example was learned."""
        return self.hits / max(self.examples, 1)


@dataclass
class Standing:
    """Where a training stands between two epochs, besides what its learner holds."""

    losses: list[float] = field(default_factory=list)  # of every epoch so far
    highest: float = -1.0  # precision on the held-out rows
    waited: int = 0  # epochs since then
    best: LinearModel | None = None
    best_paths: Ints | None = None  # of all labels at that time, where codebooks are tables
    ended: bool = False  # and was not interrupted


@dataclass
class Training:
    """A learner on its trellis and codebooks, and how it learns."""

    trellis: Trellis
    codebooks: list[Codebook]
    learner: Learner
    n_labels: int
    loss: str
    learning_rate: float
    l1: float
    ranking_multiplier: int
    batch_size: int = 1
    n_jobs: int | None = None
    verbose: bool = False
    losses: list[float] = field(default_factory=list)  # of every pass begun

    def run(
        self,
        parts: Callable[[], Iterable[Part]],
        n_rows: int,
        *,
        epochs: int,
        patience: int = 0,
        precision: Callable[[LinearModel], float] | None = None,
        standing: Standing | None = None,
        after_epoch: Callable[[Standing], None] | None = None,
    ) -> LinearModel | None:
        """Pass over the rows, which `parts` gives anew for every epoch, or until Ctrl-C.

        With `precision`, stop when the model's has not risen for `patience` epochs, and return the
        best model; labels have the paths that they had then. `standing` is where to go on;
        `after_epoch` is told where the training stands.
        """
        at = Standing() if standing is None else standing
        self.losses, done = at.losses, len(at.losses)
        with interruptible(), progress_bar(self.verbose, epochs, n_rows, done) as show:
            for epoch in range(done, epochs):
                if precision is not None and at.waited >= patience:
                    break
                self.pass_over(parts(), partial(show, epoch + 1))
                if precision is not None:
                    model = self.learner.model(self.l1)
                    if (reached := precision(model)) > at.highest:
                        at.highest, at.waited, at.best = reached, 0, model.copy()
                        at.best_paths = self._table_paths()
                    else:
                        at.waited += 1
                if after_epoch is not None:
                    after_epoch(at)
            at.ended = True
        if at.best_paths is not None:
            self._take_paths(at.best_paths)
        return at.best

    def pass_over(
        self, parts: Iterable[Part], show: Callable[[Pass, int], None] | None = None
    ) -> None:
        """Learn from the rows of some parts, in the order that each names.

        The work is cut into chunks of about a tenth of a second, so that Ctrl-C is heard.
        """
        learner, result = self.learner, Pass()
        size = self.batch_size * max(1, 64 // self.batch_size)  # whole batches
        self.losses.append(0.0)
        try:
            for examples, order in parts:
                features = engine_features(examples.X, learner.intercept, learner.unit_length)
                paths = self._paths(examples.labels)
                first = 0
                while first < len(order):
                    chunk = order[first : first + size]
                    check_time()
                    start = time.perf_counter()
                    result.add(*self._learn(examples, features, chunk, paths))
                    first += len(chunk)
                    if show is not None:
                        show(result, len(chunk))
                    if time.perf_counter() - start < _CHUNK_SECONDS / 2:
                        size *= 2
        finally:
            # The sum's last digits depend on the chunks, and they on the clock.
            self.losses[-1] = float(f"{result.mean_loss:.8g}")
            self.learner.epochs += 1
            self._assign_the_rest()

    def _learn(
        self, examples: Examples, features: _engine.Features, rows: Ints, paths: Ints
    ) -> tuple[float, float, int]:
        return self.learner.learn(
            self.trellis,
            features,
            rows,
            examples.indptr,
            examples.labels,
            paths,
            example_weights=examples.weights,
            codebooks=[book._engine for book in self._tables],
            loss=self.loss,
            multilabel=examples.multilabel,
            rate=self.learning_rate,
            # The authors' code thresholds from the second epoch on.
            threshold=self.l1 if self.learner.epochs > 0 else 0.0,
            count_hits=self.verbose,
            ranking_multiplier=self.ranking_multiplier,
            batch=self.batch_size,
            n_jobs=threads(self.n_jobs),
        )

    def _paths(self, labels: Ints) -> Ints:
        """Return each trellis' paths of labels, −1 where they are to be assigned when met."""
        paths = np.full((len(self.codebooks), len(labels)), -1, np.int64)
        for row, codebook in zip(paths, self.codebooks, strict=True):
            known = labels < codebook.n_labels
            row[known] = codebook.path_of(labels[known])
        return paths

    @property
    def _tables(self) -> list[TableCodebook]:
        return [book for book in self.codebooks if isinstance(book, TableCodebook)]

    def _table_paths(self) -> Ints | None:
        """Return the paths of all labels, a row for every trellis, if there are tables of them."""
        return np.stack([book.paths for book in self._tables]) if self._tables else None

    def _take_paths(self, paths: Ints) -> None:
        for number, (book, row) in enumerate(zip(self._tables, paths, strict=True)):
            if not np.array_equal(book.paths, row):
                self.codebooks[number] = TableCodebook(book.n_paths, row)

    def _assign_the_rest(self) -> None:
        """Give free paths to the labels that no row has had."""
        for book in self._tables:
            known = min(book.n_labels, self.n_labels)
            missing = np.flatnonzero(book.path_of(np.arange(known)) < 0).tolist()
            for label in [*missing, *range(known, self.n_labels)]:
                book.assign(label, book.free_path())


class TrainingInterruptedWarning(RuntimeWarning):
    """Training was stopped by Ctrl-C; the estimator keeps the weights learned so far."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C end the work with a warning instead of an error."""
    try:
        yield
    except KeyboardInterrupt:
        warnings.warn(
            "training was interrupted; the estimator keeps what it has learned so far",
            TrainingInterruptedWarning,
            stacklevel=5,  # the caller of fit
        )


@contextmanager
def progress_bar(
    verbose: bool, epochs: int, rows: int, done: int = 0
) -> Iterator[Callable[[int, Pass, int], None]]:
    """Show a bar over all epochs with loss, P@1 and time left; yield what moves it on."""
    if not verbose:
        yield lambda _epoch, _result, _done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %  left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("training", total=epochs * rows, completed=done * rows)

        def show(epoch: int, result: Pass, done: int) -> None:
            text = (
                f"epoch {epoch}/{epochs}  loss {result.mean_loss:.4f}  P@1 {result.precision:.3f}"
            )
            progress.update(task, advance=done, description=text)

        yield show
