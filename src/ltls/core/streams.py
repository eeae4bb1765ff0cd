"""Input and output of data files: files, pipes, standard input and standard output."""

from __future__ import annotations

import codecs
import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from .atomic import replacing
from .compression import (
    corruption_reported,
    decompressed,
    has_compression_suffix,
    open_compressed,
    open_decompressed,
)
from .size_limits import DEFAULT_LIMITS, SizeLimits

_PEEK = 1 << 16


def display_name(path: str | os.PathLike[str]) -> str:
    """Return the name of a file for messages; ``-`` is standard input."""
    return "standard input" if os.fspath(path) == "-" else os.fspath(path)


def without_compression_suffix(path: str | os.PathLike[str]) -> str:
    """Return a file name without .gz, .xz, .bz2 or .zst."""
    name = os.fspath(path)
    return os.path.splitext(name)[0] if has_compression_suffix(name) else name


def is_pipe(path: str | os.PathLike[str]) -> bool:
    """Return whether a path can be read only once: ``-``, a named pipe, or <(a command)."""
    name = os.fspath(path)
    return name == "-" or (
        os.path.exists(name) and not os.path.isfile(name) and not os.path.isdir(name)
    )


def is_special(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a named pipe or a character device, such as /dev/stdout."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


@contextmanager
def open_input(
    path: str | os.PathLike[str],
    limits: SizeLimits = DEFAULT_LIMITS,
    encoding: str | None = None,
) -> Iterator[io.BufferedReader]:
    """Open a file to read its decompressed content; ``-`` is standard input.

    A pipe that is opened again continues where reading stopped. Text of another encoding is
    converted to UTF-8.

    Raises
    ------
    CorruptFileError
        If the compressed file is truncated or corrupt.
    FileTooLargeError
        If it holds more than the limits permit.
    """
    if is_pipe(path):
        with corruption_reported(display_name(path)):
            yield _recoded(_open_once(os.fspath(path), limits), path, encoding)
    else:
        with open_decompressed(os.fspath(path), limits) as stream:
            yield _recoded(_buffered(stream), path, encoding)


def _recoded(
    stream: io.BufferedReader, path: str | os.PathLike[str], encoding: str | None
) -> io.BufferedReader:
    """Return a stream of UTF-8, given one of another encoding."""
    if encoding is None or codecs.lookup(encoding).name == "utf-8":
        return stream
    return io.BufferedReader(_Recoded(stream, display_name(path), encoding), _PEEK)


class _Recoded(io.RawIOBase):
    """Text of some encoding as UTF-8; what arrives is passed on at once."""

    def __init__(self, stream: io.BufferedReader, name: str, encoding: str) -> None:
        self._stream, self._name, self._encoding = stream, name, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._rest = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes; 0 at the end."""
        while not self._rest:
            raw = self._stream.read1(_PEEK)
            try:
                self._rest = self._decoder.decode(raw, final=not raw).encode()
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{self._name}: not {self._encoding}: {error.reason}; give another encoding"
                ) from None
            if not raw and not self._rest:
                return 0
        n = min(len(buffer), len(self._rest))
        buffer[:n], self._rest = self._rest[:n], self._rest[n:]
        return n


_pipes: dict[str, tuple[Any, io.BufferedReader]] = {}  # open pipes, by name


def _open_once(name: str, limits: SizeLimits) -> io.BufferedReader:
    source = sys.stdin if name == "-" else None
    if name not in _pipes or _pipes[name][0] is not source:
        raw = _standard_input() if name == "-" else open(name, "rb")  # noqa: SIM115
        content = decompressed(_buffered(raw), display_name(name), limits)
        _pipes[name] = source, _buffered(content)
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


def peek_first_line(stream: io.BufferedReader) -> bytes:
    """Return the first line that is not blank, within the buffer, without reading."""
    return stream.peek(_PEEK).lstrip().split(b"\n", 1)[0]


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
        with open_compressed(path, os.fspath(path)) as stream:
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
