"""What commands write: one-line messages, tables, progress, and files that are replaced atomically.

Text from files is escaped for terminals, which would obey the control sequences in it.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

from ..core.streams import is_special, open_output, open_text_output

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")
# Control characters (C0, DEL and C1) but tab and line feed, and those that reorder what is shown.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
_MAX_MESSAGE = 500  # characters; a message may quote a long line of a file
_verbosity = {"notes": False, "progress": True}


def printable(text: str) -> str:
    r"""Return text with control characters as escapes, such as ``\x1b``.

    Examples
    --------
    >>> from ltls.cli.output import printable
    >>> print(printable("\x1b[31mred"))
    \x1b[31mred
    """
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def escaped(label: object) -> str:
    """Return a label as one field of a tab-separated line."""
    return str(label).translate(_ESCAPES)


# Messages


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


# Progress and tables


def console() -> Console:
    """Return the console of progress bars: standard error, if it is a terminal."""
    from rich.console import Console  # slow; not needed for error messages

    return Console(stderr=True, quiet=not (sys.stderr.isatty() and _verbosity["progress"]))


def progress(what: str, batches: Iterable[T], shown: bool = True) -> Iterable[T]:
    """Yield batches, and show their number so far."""
    from rich.progress import track

    return track(batches, what, console=console(), transient=True, disable=not shown)


def show_facts(facts: dict[str, Any]) -> None:
    """Print a table of names and values; a dict is shown as name=value pairs."""
    facts = {name.replace("_", " "): value for name, value in facts.items()}
    precision = facts.pop("held out precision", None)
    if precision is not None:
        facts["P@1 on held-out rows"] = (
            f"{precision:.4f} (the weights were chosen on them; usually lower in a test)"
        )
    show(
        [
            (name, _listed(value) if isinstance(value, dict) else value)
            for name, value in facts.items()
        ]
    )


def _listed(facts: dict[str, Any]) -> str:
    given = {name: value for name, value in facts.items() if value not in (None, [], ())}
    return ", ".join(f"{name}={value}" for name, value in given.items())


def show(rows: Sequence[Sequence[Any]], *header: str) -> None:
    """Print a table."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*header, show_header=bool(header))
    for row in rows:
        texts = (f"{cell:,}" if type(cell) is int else str(cell) for cell in row)
        table.add_row(*(Text(printable(text), overflow="fold") for text in texts))
    Console().print(table)


BAR = 16  # characters of the longest bar


def bar(share: float, width: int = BAR) -> str:
    """Return a bar for a number between 0 and 1, with eighths of a character."""
    eighths = round(max(0.0, min(share, 1.0)) * width * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


# Files


def is_standard_output(path: Path) -> bool:
    """Return whether a path is standard output, a pipe or a device: no place for a summary."""
    return str(path) in ("-", "/dev/stdout") or is_special(path)


def check_output(path: Path | None, *inputs: Path | None, special: bool = False) -> None:
    """Raise an error before the work is done if a file cannot be written.

    `special` permits a named pipe or a device such as /dev/stdout.
    """
    if path is None or str(path) in ("-", "/dev/stdout"):
        sys.stdout.write("")  # an error if it is closed
        return
    if special and is_special(path):
        return
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: not a regular file; choose another output file")
    if path.exists() and any(each and each.exists() and path.samefile(each) for each in inputs):
        raise ValueError(f"{path}: the input cannot also be the output")
    if not path.parent.is_dir():
        reason = f"{os.strerror(errno.ENOENT)}; create the folder {path.parent} first"
        raise FileNotFoundError(errno.ENOENT, reason, str(path))
    with errors_named(path), tempfile.TemporaryFile(dir=path.resolve().parent):
        pass


@contextmanager
def errors_named(path: Path | None) -> Iterator[None]:
    """Add the file name to write errors; that of a full disk lacks it."""
    try:
        yield
    except OSError as error:
        if path is not None and str(path) != "-":
            error.filename = str(path)
        raise


@contextmanager
def text_output(path: Path | None) -> Iterator[IO[str]]:
    """Open standard output (None or ``-``) or a file for text, escaped for a terminal."""
    with errors_named(path), open_text_output(path) as stream:
        yield cast(IO[str], _PrintableStream(stream)) if stream.isatty() else stream


class _PrintableStream:
    """A terminal whose output has control characters escaped."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text."""
        return self._stream.write(printable(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def binary_output(path: Path) -> Iterator[IO[bytes]]:
    """Open standard output (``-``) or a file for bytes."""
    with errors_named(path), open_output(path) as stream:
        yield stream
