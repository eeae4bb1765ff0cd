"""Messages on standard error: one line each."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .printable import printable

_MAX_MESSAGE = 500  # characters; a message may quote a line of a file
_verbosity = {"notes": False, "progress": True}


def set_verbosity(verbose: bool, quiet: bool = False) -> None:
    """Set what is printed on standard error: notes with --verbose, no progress with --quiet."""
    _verbosity.update(notes=verbose and not quiet, progress=not quiet)


def progress_enabled() -> bool:
    """Return whether progress bars are enabled."""
    return _verbosity["progress"]


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


def print_line(message: str) -> None:
    """Print one line of limited length to standard error."""
    line = printable(" ".join(part.strip() for part in message.strip().splitlines()))
    end = " ..." if len(line) > _MAX_MESSAGE else ""
    print(f"ltls: {line[:_MAX_MESSAGE]}{end}", file=sys.stderr)


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print warnings for users as one line each, and ignore those for developers."""

    def show(message: Any, *_: Any, **__: Any) -> None:
        warn(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", RuntimeWarning)
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        yield
