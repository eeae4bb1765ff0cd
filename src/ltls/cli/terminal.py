"""How a command speaks: tables, progress, and failures as one line and an exit code."""

from __future__ import annotations

import difflib
import errno
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

_LONGEST_MESSAGE = 500  # a message may quote a line of a file
_MUCH = {"notes": False, "progress": True}  # what the command line wants to hear


def listen(verbose: bool, quiet: bool = False) -> None:
    """Set how much is said on standard error: notes with --verbose, no progress with --quiet."""
    _MUCH.update(notes=verbose and not quiet, progress=not quiet)


def note(message: str) -> None:
    """Say what only --verbose wants to know."""
    if _MUCH["notes"]:
        _say(message)


def warn(message: str) -> None:
    """Say what the user should know although the work goes on."""
    _say(f"warning: {message}")


def console() -> Console:
    """Return where progress is shown: standard error, if that is a terminal."""
    from rich.console import Console

    return Console(stderr=True, quiet=not (sys.stderr.isatty() and _MUCH["progress"]))


@contextmanager
def counting(what: str, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """Show how many rows are done, and how fast; yield what counts them."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    progress = Progress(*columns, console=console(), transient=True, disable=not shown)
    start, done = time.monotonic(), 0
    with progress:
        task = progress.add_task(what)

        def count(rows: int) -> None:
            nonlocal done
            done += rows
            rate = done / max(time.monotonic() - start, 1e-9)
            progress.update(task, description=f"{what} {done:,} rows, {rate:,.0f} a second")

        yield count


def show_facts(facts: dict[str, Any]) -> None:
    """Print a table of names and values."""
    show([(name.replace("_", " "), value) for name, value in facts.items()])


def show(rows: Sequence[Sequence[Any]], *header: str) -> None:
    """Print a table."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*header, show_header=bool(header))
    for row in rows:
        texts = (f"{cell:,}" if type(cell) is int else str(cell) for cell in row)
        table.add_row(*(Text(text, overflow="fold") for text in texts))
    Console().print(table)


def bar(share: float, width: int = 30) -> str:
    """Return a bar of a share between 0 and 1, with eighths of a character."""
    eighths = round(max(0.0, min(share, 1.0)) * width * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def run(app: typer.Typer, arguments: list[str]) -> int:
    """Run a command line and return its exit code; a failure is one line on standard error."""
    try:
        with _warnings_as_lines():
            code = app(arguments, prog_name="ltls", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:  # who reads standard output has enough
        code = 1
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except Exception as error:
        code = 2
        _say(_message(error))
    _drop_unwritten()
    return code


def _message(error: Exception) -> str:
    """Tell a failure that a user can cause; raise any other, which is a fault of ours."""
    if hasattr(error, "format_message"):  # wrong arguments, by click or typer's own copy of it
        command = getattr(getattr(error, "ctx", None), "command_path", "ltls")
        return f"{error.format_message().rstrip('.')}; see {command} --help"
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"{error.filename}: {error.strerror}{_similar_file(str(error.filename))}"
    if isinstance(error, OSError) and error.strerror:
        if error.errno == errno.ENOSPC and not error.filename:  # files are named where they fail
            return f"standard output: {error.strerror}; free some space, or write elsewhere"
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, MemoryError):
        return f"not enough memory: {error}"
    if isinstance(error, (ValueError, OSError, OverflowError)):
        # Parameters of the estimator are options here.
        parameter = re.match(r"The '(\w+)' parameter of \w+ (.*)", str(error))
        return f"--{parameter[1].replace('_', '-')} {parameter[2]}" if parameter else str(error)
    raise error


def _similar_file(path: str) -> str:
    """Name the file that may have been meant."""
    folder, name = os.path.split(path)
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return ""
    stem, suffix = os.path.splitext(name)  # a common suffix does not make names alike
    others = [other.removesuffix(suffix) for other in names if other.endswith(suffix)]
    close = difflib.get_close_matches(stem, others, n=1, cutoff=0.8)
    return f"; did you mean {os.path.join(folder, close[0] + suffix)}?" if close else ""


def _say(message: str) -> None:
    """Print one line, of bearable length, to standard error."""
    line = " ".join(message.split())
    end = " ..." if len(line) > _LONGEST_MESSAGE else ""
    print(f"ltls: {line[:_LONGEST_MESSAGE]}{end}", file=sys.stderr)


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Show a warning as one line, and none that is for programmers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", RuntimeWarning)
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = lambda message, *_, **__: warn(str(message))
        yield


def _drop_unwritten() -> None:
    """Let Python end quietly where standard output can no longer be written."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
