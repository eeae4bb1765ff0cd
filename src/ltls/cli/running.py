"""Running a command line: errors are one line and an exit code."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer

from .messages import print_line, warnings_as_lines

INTERRUPTED = 130  # exit code after Ctrl-C
_TERMINATED = 143  # after SIGTERM


class Terminated(BaseException):
    """The process was asked to end by SIGTERM."""


class _ClosedStream(io.TextIOBase):
    """A standard stream that is closed, as by ``>&-``: using it is an error."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _fail(self, *_: Any) -> NoReturn:
        raise OSError(errno.EBADF, "it is closed", self._name)

    read = write = _fail
    buffer = property(_fail)


def prepare_standard_streams() -> None:
    """Let standard streams be UTF-8 in every locale, and closed ones say so when they are used."""
    for name in ("stdin", "stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if stream is None:
            free = os.open(os.devnull, os.O_RDWR)  # takes its number, which no file must get
            full_name = f"standard {'input' if name == 'stdin' else 'output'}"
            closed = open(free, "w") if name == "stderr" else _ClosedStream(full_name)  # noqa: SIM115
            setattr(sys, name, closed)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def run(app: typer.Typer, arguments: list[str]) -> int:
    """Run a command line and return its exit code; an error is one line on standard error."""
    try:
        with warnings_as_lines(), _clean_termination():
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
    if isinstance(error, OSError) and error.strerror:
        reason = error.strerror
        if error.errno in (errno.ENOSPC, errno.EFBIG):
            reason += "; free some space, or write elsewhere"
        # Errors of files have a name, but for that of a full standard output.
        name = error.filename or ("standard output" if error.errno == errno.ENOSPC else None)
        return f"{name}: {reason}" if name else reason
    if isinstance(error, MemoryError):
        return f"not enough memory: {error}"
    if isinstance(error, (ValueError, OSError, OverflowError)):
        from ..io.errors import RowError

        hint = "; fix it, or skip such rows with --skip-bad-rows"
        return f"{error}{hint if isinstance(error, RowError) else ''}"
    raise error


def _drop_unwritten() -> None:
    """Let Python exit quietly if standard output can no longer be written."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
