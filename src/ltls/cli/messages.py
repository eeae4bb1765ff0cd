"""Messages on standard error: one line each."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from .printable import printable

_MAX_MESSAGE = 500  # characters; a message may quote a line of a file
_verbosity = {"notes": False, "progress": True}


def set_verbosity(verbose: bool, quiet: bool = False) -> None:
    """Set what is printed on standard error: notes with --verbose, no progress with --quiet."""
    _verbosity.update(notes=verbose and not quiet, progress=not quiet)


def note(message: str) -> None:
    """Print a line if --verbose is given."""
    if _verbosity["notes"]:
        print_line(message)


def inform(message: str) -> None:
    """Print a line unless --quiet is given."""
    if _verbosity["progress"]:
        print_line(message)


def warn(message: str) -> None:
    """Print a warning."""
    print_line(f"warning: {message}")


def progress_enabled() -> bool:
    """Return whether progress bars are enabled."""
    return _verbosity["progress"]


def print_line(message: str) -> None:
    """Print one line of limited length to standard error."""
    line = printable(" ".join(part.strip() for part in message.strip().splitlines()))
    end = " ..." if len(line) > _MAX_MESSAGE else ""
    print(f"ltls: {line[:_MAX_MESSAGE]}{end}", file=sys.stderr)


@contextmanager
def noticed(category: type[Warning]) -> Iterator[list[Warning | str]]:
    """Yield a list of the warnings of a category, which are not printed; others are as before."""
    found: list[Warning | str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", category)
        show_other = warnings.showwarning

        def show_warning(
            message: Warning | str,
            category_of_message: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category_of_message, category):
                found.append(message)
            else:
                show_other(message, category_of_message, filename, lineno, file, line)

        warnings.showwarning = show_warning  # type: ignore[assignment]
        yield found
