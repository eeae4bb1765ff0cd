"""How a command speaks: tables, progress, and failures as one line and an exit code."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

_LONGEST_MESSAGE = 500  # a message may quote a line of a file


def console() -> Console:
    """Return where progress is shown: standard error, if that is a terminal."""
    from rich.console import Console

    return Console(stderr=True, quiet=not sys.stderr.isatty())


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
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, MemoryError):
        return f"not enough memory: {error}"
    if isinstance(error, (ValueError, OSError, OverflowError)):
        # Parameters of the estimator are options here.
        parameter = re.match(r"The '(\w+)' parameter of LTLSClassifier (.*)", str(error))
        return f"--{parameter[1].replace('_', '-')} {parameter[2]}" if parameter else str(error)
    raise error


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
        warnings.showwarning = lambda message, *_, **__: _say(f"warning: {message}")
        yield


def _drop_unwritten() -> None:
    """Let Python end quietly where standard output can no longer be written."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
