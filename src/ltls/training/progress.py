"""Progress of training, and interruption by Ctrl-C."""

from __future__ import annotations

import logging
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

logger = logging.getLogger("ltls")
logger.addHandler(logging.NullHandler())
_stage: ContextVar[str] = ContextVar("stage", default="")  # which all lines begin with


@dataclass
class EpochStats:
    """Sums over the rows of an epoch."""

    loss: float = 0.0
    hits: float = 0.0
    examples: int = 0
    rows: int = 0  # examples, and rows without labels

    def add(self, loss: float, hits: float, examples: int, rows: int = 0) -> None:
        """Add the sums of a chunk of rows."""
        self.loss += loss
        self.hits += hits
        self.examples += examples
        self.rows += rows

    @property
    def mean_loss(self) -> float:
        """The loss per example."""
        return self.loss / max(self.examples, 1)

    @property
    def rounded_loss(self) -> float:
        """The loss per example, without the last digits of the sum.

        The last digits depend on the sizes of chunks, and thus on timing.
        """
        return float(f"{self.mean_loss:.8g}")

    @property
    def precision(self) -> float:
        """Progressive P@1: each example is predicted just before the model is trained on it."""
        return self.hits / max(self.examples, 1)


# Called with the epoch, its statistics so far, and the number of rows since the last call.
ShowProgress: TypeAlias = Callable[[int, EpochStats, int], None]


@contextmanager
def progress_bar(
    verbose: bool, epochs: int, rows: int, done: int = 0, found: str = "labels"
) -> Iterator[ShowProgress]:
    """Show a bar over all epochs with loss and time left; yield its update function.

    `found` is what P@1 counts: labels or, for the trellises of views, clusters of labels.
    If standard error is not a terminal, `log_epoch` prints lines instead.
    """
    with _bar(verbose, "training", epochs * rows, done * rows) as advance:
        yield lambda epoch, stats, rows: advance(rows, _described(epoch, epochs, stats, found))


@contextmanager
def row_bar(verbose: bool, name: str, rows: int) -> Iterator[Callable[[int], None]]:
    """Show a bar over rows, then a line; yield a function to call with the rows that are done."""
    start = time.perf_counter()
    with _bar(verbose, name, rows) as advance:
        yield lambda rows: advance(rows, name)
    show(verbose, f"{name}  {rows:,} rows  {time.perf_counter() - start:.1f} s")


@contextmanager
def _bar(
    verbose: bool, name: str, total: int, done: int = 0
) -> Iterator[Callable[[int, str], None]]:
    """Show a bar if standard error is a terminal; yield a function that moves it and names it."""
    console = Console(stderr=True)
    if not verbose or not _shows_bars(console):
        yield lambda _rows, _name: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %  left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(_stage.get() + name, total=total, completed=done)

        def move(rows: int, name: str) -> None:
            progress.update(task, advance=rows, description=_stage.get() + name)

        yield move


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Begin all lines and bars of a block with the name of a stage."""
    token = _stage.set(f"{name}: ")
    try:
        yield
    finally:
        _stage.reset(token)


def log_epoch(
    verbose: bool,
    epoch: int,
    epochs: int,
    stats: EpochStats,
    seconds: float,
    precision: float,
    found: str,
) -> None:
    """Log an epoch, and print it if there is no progress bar to show it.

    `precision` is P@1 on validation rows, negative if there are none; `found` as in `progress_bar`.
    """
    line = _described(epoch, epochs, stats, found)
    if precision >= 0:
        line += f"  validation P@1 {precision:.4f}"
    line += f"  {stats.examples:,} rows  {seconds:.1f} s"
    show(verbose and not _shows_bars(Console(stderr=True)), line)


def _described(epoch: int, epochs: int, stats: EpochStats, found: str) -> str:
    line = f"epoch {epoch}/{epochs}  loss {stats.mean_loss:.4f}"
    precision = f"  P@1 of {found} on training rows {stats.precision:.3f}"
    return line + precision if stats.hits else line


@contextmanager
def phase(verbose: bool, name: str) -> Iterator[None]:
    """Log a phase of training and its duration, and print them if `verbose`.

    A terminal also shows the phase while it runs.
    """
    start = time.perf_counter()
    console = Console(stderr=True)
    with console.status(_stage.get() + name) if verbose and _shows_bars(console) else nullcontext():
        yield
    show(verbose, f"{name}  {time.perf_counter() - start:.1f} s")


def show(verbose: bool, line: str) -> None:
    """Log a line, and print it if `verbose`."""
    line = _stage.get() + line
    logger.info(line)
    if verbose:
        print(line, file=Console(stderr=True).file, flush=True)


def _shows_bars(console: Console) -> bool:
    return console.is_terminal or console.is_jupyter


# Ctrl-C


class TrainingInterruptedWarning(RuntimeWarning):
    """Training was interrupted by Ctrl-C; the estimator keeps the weights trained so far."""


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Defer Ctrl-C and SIGTERM to the end of a block that must not be interrupted."""
    arrived: list[int] = []
    before: dict[int, Any] = {}

    def defer(number: int, _frame: Any) -> None:
        arrived.append(number)

    try:
        if threading.current_thread() is threading.main_thread():  # which handles all signals
            for number in (signal.SIGTERM, signal.SIGINT):
                handler = signal.getsignal(number)
                if callable(handler):
                    before[number] = handler
                    signal.signal(number, defer)
        yield
    finally:
        for deferred, handler in before.items():
            signal.signal(deferred, handler)
        for each in arrived:
            signal.raise_signal(each)


class InterruptGuard:
    """Makes context managers that turn Ctrl-C into a warning, and sets `interrupted`.

    Parameters
    ----------
    keep : bool
        Whether to keep the trained weights. If False, `KeyboardInterrupt` propagates.
    """

    def __init__(self, keep: bool) -> None:
        self.keep = keep
        self.interrupted = False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Guard a block; after Ctrl-C in it, execution continues after the block."""
        try:
            yield
        except KeyboardInterrupt:
            if not self.keep:
                raise
            if not self.interrupted:
                self.interrupted = True
                warnings.warn(
                    "training was interrupted; the estimator keeps the weights trained so far",
                    TrainingInterruptedWarning,
                    stacklevel=2,
                )
