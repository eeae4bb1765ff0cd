"""Tables and progress bars in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from .messages import progress_enabled
from .printable import printable

T = TypeVar("T")


def console() -> Console:
    """Return the console of progress bars: standard error, if it is a terminal."""
    return Console(stderr=True, quiet=not (sys.stderr.isatty() and progress_enabled()))


def progress(what: str, batches: Iterable[T], shown: bool = True) -> Iterable[T]:
    """Yield batches, and show how many there were."""
    return track(batches, what, console=console(), transient=True, disable=not shown)


def show_facts(facts: dict[str, Any]) -> None:
    """Print a table of names and values, of which those that are objects have names themselves."""
    show(
        [
            (name.replace("_", " "), _listed(value) if isinstance(value, dict) else value)
            for name, value in facts.items()
        ]
    )


def _listed(facts: dict[str, Any]) -> str:
    given = {name: value for name, value in facts.items() if value not in (None, [], ())}
    return ", ".join(f"{name}={value}" for name, value in given.items())


def show(rows: Sequence[Sequence[Any]], *header: str) -> None:
    """Print a table."""
    table = Table(*header, show_header=bool(header))
    for row in rows:
        texts = (f"{cell:,}" if type(cell) is int else str(cell) for cell in row)
        table.add_row(*(Text(printable(text), overflow="fold") for text in texts))
    Console().print(table)


def bar(share: float, width: int = 16) -> str:
    """Return a bar for a number between 0 and 1, with eighths of a character."""
    eighths = round(max(0.0, min(share, 1.0)) * width * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
