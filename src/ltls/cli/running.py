"""Running a command line: errors are one line and an exit code."""

from __future__ import annotations

import difflib
import errno
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from .messages import print_line, warn

INTERRUPTED = 130  # exit code after Ctrl-C
_TERMINATED = 143  # after SIGTERM


class Terminated(BaseException):
    """The process was asked to end by SIGTERM."""


def run(app: typer.Typer, arguments: list[str]) -> int:
    """Run a command line and return its exit code; an error is one line on standard error."""
    try:
        with _warnings_as_lines(), _clean_termination():
            code = app(arguments, prog_name="ltls", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:  # the reader of standard output has closed it
        code = 1
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except Exception as error:
        code = 2
        print_line(_message(error))
    except Terminated:
        code = _TERMINATED
    _drop_unwritten()
    return code


@contextmanager
def _clean_termination() -> Iterator[None]:
    """Let SIGTERM end the command as an error does: unfinished files are removed."""

    def terminate(*_: object) -> NoReturn:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _message(error: Exception) -> str:
    """Return the message of an error that a user can cause; raise any other, which is a bug."""
    if hasattr(error, "format_message"):  # wrong arguments; of click, or of typer's copy of it
        command = getattr(getattr(error, "ctx", None), "command_path", "ltls")
        return f"{error.format_message().rstrip('.')}; see {command} --help"
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"{error.filename}: {error.strerror}{_similar_file(str(error.filename))}"
    if isinstance(error, OSError) and error.strerror:
        if error.errno == errno.ENOSPC and not error.filename:  # errors of files have a name
            return f"standard output: {error.strerror}; free some space, or write elsewhere"
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, MemoryError):
        return f"not enough memory: {error}"
    if isinstance(error, (ValueError, OSError, OverflowError)):
        parameter = getattr(error, "parameter", None)  # of a `ParameterError`: an option here
        if parameter is not None:
            return f"--{parameter.replace('_', '-')} {getattr(error, 'reason', error)}"
        return str(error)
    raise error


def _similar_file(path: str) -> str:
    """Suggest an existing file with a similar name."""
    folder, name = os.path.split(path)
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return ""
    stem, suffix = os.path.splitext(name)  # equal suffixes do not make names similar
    others = [other.removesuffix(suffix) for other in names if other.endswith(suffix)]
    close = difflib.get_close_matches(stem, others, n=1, cutoff=0.8)
    return f"; did you mean {os.path.join(folder, close[0] + suffix)}?" if close else ""


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Print RuntimeWarning and UserWarning as one line each; ignore those for developers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", RuntimeWarning)
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = lambda message, *_, **__: warn(str(message))
        yield


def _drop_unwritten() -> None:
    """Let Python exit quietly if standard output can no longer be written."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
