"""What a user sees of training, and how it ends early: progress and Ctrl-C."""

from __future__ import annotations

import logging
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

logger = logging.getLogger("ltls")
logger.addHandler(logging.NullHandler())


@dataclass
class EpochStats:
    """Sums over one pass."""

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

        They depend on the sizes of the chunks, which depend on timing.
        """
        return float(f"{self.mean_loss:.8g}")

    @property
    def precision(self) -> float:
        """Progressive P@1: each example is predicted just before it is trained on."""
        return self.hits / max(self.examples, 1)


# Called with the epoch, its statistics so far, and the number of rows since the last call.
ShowProgress: TypeAlias = Callable[[int, EpochStats, int], None]


@contextmanager
def progress_bar(verbose: bool, epochs: int, rows: int, done: int = 0) -> Iterator[ShowProgress]:
    """Show a bar over all epochs with loss and time left; yield its update function.

    Where standard error is no terminal, `log_epoch` prints lines instead.
    """
    if not verbose or not _shows_bars(Console(stderr=True)):
        yield lambda _epoch, _stats, _rows: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %  left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("training", total=epochs * rows, completed=done * rows)

        def show(epoch: int, stats: EpochStats, rows: int) -> None:
            text = (
                f"epoch {epoch}/{epochs}  loss {stats.mean_loss:.4f}  "
                f"P@1 on training rows {stats.precision:.3f}"
            )
            progress.update(task, advance=rows, description=text)

        yield show


def log_epoch(
    verbose: bool, epoch: int, epochs: int, stats: EpochStats, seconds: float, precision: float
) -> None:
    """Log an epoch, and print it if it is to be shown where no progress bar can be.

    `precision` is that on validation rows, negative if there are none.
    """
    line = f"epoch {epoch}/{epochs}  loss {stats.mean_loss:.4f}"
    if stats.hits:
        line += f"  P@1 on training rows {stats.precision:.3f}"
    if precision >= 0:
        line += f"  validation P@1 {precision:.4f}"
    line += f"  {stats.examples:,} rows  {seconds:.1f} s"
    show(verbose and not _shows_bars(Console(stderr=True)), line)


@contextmanager
def phase(verbose: bool, name: str) -> Iterator[None]:
    """Log a phase of training and how long it takes, and print it if it is to be shown.

    A terminal also shows the phase while it runs.
    """
    start = time.perf_counter()
    console = Console(stderr=True)
    with console.status(name) if verbose and _shows_bars(console) else nullcontext():
        yield
    show(verbose, f"{name}  {time.perf_counter() - start:.1f} s")


def show(verbose: bool, line: str) -> None:
    """Log a line, and print it if it is to be shown."""
    logger.info(line)
    if verbose:
        _print(line)


def _print(line: str) -> None:
    console = Console(stderr=True)
    console.file.write(f"{line}\n")
    console.file.flush()


def _shows_bars(console: Console) -> bool:
    return console.is_terminal or console.is_jupyter


# Ctrl-C


class TrainingInterruptedWarning(RuntimeWarning):
    """Training was interrupted by Ctrl-C; the estimator keeps the weights so far."""


def check_signals() -> None:
    """Do nothing: before it returns, Python handles signals that have arrived, such as Ctrl-C."""


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait for the end of a block, of which nothing may be left undone."""
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
    """Turns Ctrl-C into a warning, once, and remembers it.

    Parameters
    ----------
    keep : bool
        If False, `KeyboardInterrupt` propagates.
    """

    def __init__(self, keep: bool) -> None:
        self.keep = keep
        self.interrupted = False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Guard a block: after Ctrl-C, execution continues behind it."""
        try:
            yield
        except KeyboardInterrupt:
            if not self.keep:
                raise
            if not self.interrupted:
                self.interrupted = True
                warnings.warn(
                    "training was interrupted; the estimator keeps the weights so far",
                    TrainingInterruptedWarning,
                    stacklevel=2,
                )
