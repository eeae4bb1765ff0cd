"""Input and output of data files: files, pipes, standard input and standard output."""

from __future__ import annotations

import codecs
import errno
import io
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from .atomic import replacing
from .compression import corruption_reported, decompressed, open_compressed
from .size_limits import DEFAULT_LIMITS, SizeLimits

_PEEK = 1 << 16  # bytes by which a format is detected
_READER_SECONDS, _WAIT_SECONDS = 5.0, 0.05  # for the reader of a named pipe, and between two looks


def display_name(path: str | os.PathLike[str]) -> str:
    """Return the name of a file for messages; ``-`` is standard input."""
    return "standard input" if os.fspath(path) == "-" else os.fspath(path)


def is_special(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a named pipe or a character device, such as /dev/stdout."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def open_special(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a named pipe or a device for writing.

    A pipe waits a few seconds for its reader, not for ever as `open` does.

    Raises
    ------
    OSError
        If no process reads from a named pipe.
    """
    end = time.monotonic() + _READER_SECONDS
    while True:
        try:
            file = os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
            break
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > end:
                reason = "No process reads from this pipe: start the reader first"
                raise OSError(errno.ENXIO, reason, os.fspath(path)) from None
            time.sleep(_WAIT_SECONDS)
    if hasattr(os, "set_blocking"):
        os.set_blocking(file, True)
    return open(file, "wb")


def is_pipe(path: str | os.PathLike[str]) -> bool:
    """Return whether a path can be read only once: ``-``, a named pipe, or <(a command)."""
    return os.fspath(path) == "-" or is_special(path)


@contextmanager
def open_input(
    path: str | os.PathLike[str], limits: SizeLimits = DEFAULT_LIMITS
) -> Iterator[io.BufferedReader]:
    """Open a file to read its decompressed content; ``-`` is standard input.

    A pipe that is opened again continues where reading stopped.

    Raises
    ------
    CorruptFileError
        If the compressed file is truncated or corrupt.
    FileTooLargeError
        If it holds more than the limits permit.
    """
    name = display_name(path)
    with corruption_reported(name):
        if is_pipe(path):
            yield _open_once(os.fspath(path), limits)
            return
        with open(path, "rb", _PEEK) as raw, decompressed(raw, name, limits) as stream:
            yield stream


_pipes: dict[str, tuple[Any, io.BufferedReader]] = {}  # open pipes, by name


def _open_once(name: str, limits: SizeLimits) -> io.BufferedReader:
    source = sys.stdin if name == "-" else None
    if name not in _pipes or _pipes[name][0] is not source:
        raw = _standard_input() if name == "-" else open(name, "rb")  # noqa: SIM115
        _pipes[name] = source, decompressed(_buffered(raw), display_name(name), limits)
    return _pipes[name][1]


def _standard_input() -> Any:
    """Return standard input with a buffer of its own.

    A background thread may wait in it when the process ends, which sys.stdin does not permit.
    """
    try:
        return open(os.dup(sys.stdin.fileno()), "rb")
    except (OSError, ValueError):  # replaced by something that is no file
        return sys.stdin.buffer


def _buffered(stream: Any) -> io.BufferedReader:
    return stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream, _PEEK)


def peek_start(stream: io.BufferedReader, encoding: str | None = None) -> bytes:
    """Return the first bytes of a stream, as UTF-8, without reading."""
    start = stream.peek(_PEEK)
    if encoding is None:
        return start
    return codecs.getincrementaldecoder(encoding)("replace").decode(start).encode()


@contextmanager
def open_output(path: str | os.PathLike[str] | None) -> Iterator[IO[bytes]]:
    """Open a binary stream for writing: standard output for None or ``-``, else a file.

    The file is replaced atomically, and compressed if its name has the suffix of a compression.
    A named pipe or a character device is written to.
    """
    if path is None or os.fspath(path) == "-":
        sys.stdout.flush()
        yield sys.stdout.buffer
        return
    if is_special(path):
        with open_special(path) as raw, open_compressed(raw, os.fspath(path)) as stream:
            yield stream
        return
    with (
        replacing(path) as temporary,
        open_compressed(temporary, os.fspath(path)) as stream,
    ):
        yield stream


@contextmanager
def open_text_output(path: str | os.PathLike[str] | None) -> Iterator[IO[str]]:
    """Open a text stream for writing, as `open_output` does; files are UTF-8."""
    if path is None or os.fspath(path) == "-":
        yield sys.stdout
        return
    with (
        open_output(path) as binary,
        io.TextIOWrapper(binary, encoding="utf-8", newline="") as stream,
    ):
        yield stream
