"""Tables and progress bars in the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from .messages import progress_enabled
from .printable import printable


def console() -> Console:
    """Return the console of progress bars: standard error, if it is a terminal."""
    return Console(stderr=True, quiet=not (sys.stderr.isatty() and progress_enabled()))


@contextmanager
def progress(what: str, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """Show the number of rows and the rate; yield a function that counts further rows."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    display = Progress(*columns, console=console(), transient=True, disable=not shown)
    start, done = time.monotonic(), 0
    with display:
        task = display.add_task(what)

        def advance(rows: int) -> None:
            nonlocal done
            done += rows
            rate = done / max(time.monotonic() - start, 1e-9)
            display.update(task, description=f"{what} {done:,} rows, {rate:,.0f} rows/s")

        yield advance


def show_facts(facts: dict[str, Any]) -> None:
    """Print a table of names and values."""
    show([(name.replace("_", " "), value) for name, value in facts.items()])


def show(rows: Sequence[Sequence[Any]], *header: str) -> None:
    """Print a table."""
    table = Table(*header, show_header=bool(header))
    for row in rows:
        texts = (f"{cell:,}" if type(cell) is int else str(cell) for cell in row)
        table.add_row(*(Text(printable(text), overflow="fold") for text in texts))
    Console().print(table)


def bar(share: float, width: int = 30) -> str:
    """Return a bar for a number between 0 and 1, with eighths of a character."""
    eighths = round(max(0.0, min(share, 1.0)) * width * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
