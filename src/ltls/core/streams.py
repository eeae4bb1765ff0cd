"""Input and output of data files: files, pipes, standard input and output, compressed or not.

Reading detects compression by the first bytes of a file; writing chooses it by the suffix. The
decompressed size is limited, since a few kilobytes can hold gigabytes of zeros. A background thread
can read ahead.
"""

from __future__ import annotations

import bz2
import codecs
import errno
import gzip
import importlib
import io
import lzma
import os
import stat
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, Queue
from typing import IO, Any, TypeVar

from .atomic import replacing

T = TypeVar("T")

_PEEK = 1 << 16  # bytes from which a format is detected
_READER_SECONDS, _WAIT_SECONDS = 5.0, 0.05  # for the reader of a named pipe; between checks
_UNCHECKED = 1 << 26  # decoded bytes up to which the ratio is not checked
_PIECE = 1 << 20  # bytes that are decompressed between two checks


@dataclass(frozen=True)
class SizeLimits:
    r"""How much a compressed file or a Parquet file may hold.

    Parameters
    ----------
    max_ratio : float, default=250
        Maximum ratio of decoded to stored bytes, checked after 64 MiB of decoded bytes. Data
        files usually have ratios of 3 to 20.
    max_bytes : int or None, default=None
        Maximum number of decoded bytes; None for no limit.

    Examples
    --------
    >>> import gzip, pathlib, tempfile
    >>> from ltls.readers import FileTooLargeError, SizeLimits, read
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "rows.gz")
    ...     _ = path.write_bytes(gzip.compress(b"1 1:1\n" * 1000))
    ...     try:
    ...         rows = read(path, limits=SizeLimits(max_bytes=5000))
    ...     except FileTooLargeError:
    ...         print("too large")
    too large
    """

    max_ratio: float = 250.0
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if not self.max_ratio > 0:
            raise ValueError(f"max_ratio must be above 0, got {self.max_ratio}")
        if self.max_bytes is not None and self.max_bytes < 0:
            raise ValueError(f"max_bytes must be at least 0 or None, got {self.max_bytes}")

    def check(self, path: str, n_bytes: int, n_stored: int) -> None:
        """Raise an error if `n_bytes` decoded bytes are too many for `n_stored` bytes read."""
        if self.max_bytes is not None and n_bytes > self.max_bytes:
            raise FileTooLargeError(path, f"more than max_bytes={self.max_bytes:,} bytes")
        if n_bytes > _UNCHECKED and n_bytes > self.max_ratio * n_stored:
            raise FileTooLargeError(path, f"more than {self.max_ratio:g} times its size")


DEFAULT_LIMITS = SizeLimits()


class FileTooLargeError(ValueError):
    """A file exceeds its `SizeLimits`.

    Attributes
    ----------
    path : str
        The file, as messages name it.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"{self.path}: decoded, it is {self.reason}; if it is genuine, store it uncompressed"


class CountedInput:
    """A binary stream that counts the bytes read from it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.n_read = 0

    def read(self, size: int = -1) -> bytes:
        """Read and count bytes."""
        content: bytes = self._stream.read(size)
        self.n_read += len(content)
        return content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class LimitedOutput(io.RawIOBase):
    """The decompressed content of a stream, up to the limits."""

    def __init__(self, stream: Any, source: CountedInput, path: str, limits: SizeLimits) -> None:
        self._stream, self._source = stream, source
        self._path, self._limits = path, limits
        self._n_bytes = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer."""
        n_read: int = self._stream.readinto(memoryview(buffer)[:_PIECE])
        self._n_bytes += n_read
        self._limits.check(self._path, self._n_bytes, self._source.n_read)
        return n_read

    def close(self) -> None:
        """Close the stream, not its source."""
        if not self.closed:
            self._stream.close()
        super().close()


# Compression


class CorruptFileError(ValueError):
    """A compressed file is truncated or corrupt.

    Attributes
    ----------
    path : str
        The file, as messages name it.
    """

    def __init__(self, path: str, reason: object) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"{self.path}: the compressed file is truncated or corrupt: {self.reason}"


def _open_zstd(file: Any, mode: str) -> Any:
    try:
        home = "compression" if sys.version_info >= (3, 14) else "backports"
        zstd = importlib.import_module(f"{home}.zstd")
    except ImportError:
        raise ValueError(
            "zstd files need Python 3.14 or the package backports.zstd: pip install 'ltls[zstd]'"
        ) from None
    return zstd.open(file, mode)


# By suffix: the first bytes of such a file, and the function that opens it.
_COMPRESSIONS: dict[str, tuple[bytes, Callable[..., Any]]] = {
    ".gz": (b"\x1f\x8b", gzip.open),
    ".xz": (b"\xfd7zXZ\x00", lzma.open),
    ".bz2": (b"BZh", bz2.open),
    ".zst": (b"\x28\xb5\x2f\xfd", _open_zstd),
}


def decompressed(source: Any, path: str, limits: SizeLimits) -> Any:
    """Return a stream of the decompressed content: `source` itself if it is not compressed."""
    opener = _opener(source.peek(8))
    if opener is None:
        return source
    counted = CountedInput(source)
    return io.BufferedReader(LimitedOutput(opener(counted, "rb"), counted, path, limits))


@contextmanager
def corruption_reported(path: str) -> Iterator[None]:
    """Turn the errors of the decompressors into `CorruptFileError`."""
    try:
        yield
    except (EOFError, lzma.LZMAError, zlib.error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # an error of the operating system
        raise CorruptFileError(path, error) from error
    except Exception as error:
        if type(error).__name__ != "ZstdError":  # its module may not be installed
            raise
        raise CorruptFileError(path, error) from error


def open_compressed(file: str | os.PathLike[str] | IO[bytes], name: str) -> IO[bytes]:
    """Open a file for writing, compressed if `name` has a compression suffix."""
    _, opener = _COMPRESSIONS.get(os.path.splitext(name)[1], (b"", None))
    if opener is not None:
        compressed: IO[bytes] = opener(file, "wb")
        return compressed
    return open(file, "wb") if isinstance(file, (str, os.PathLike)) else file


def without_compression_suffix(path: str | os.PathLike[str]) -> str:
    """Return a file name without .gz, .xz, .bz2 or .zst."""
    name, suffix = os.path.splitext(os.fspath(path))
    return name if suffix in _COMPRESSIONS else name + suffix


def is_compressed(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is compressed, by its first bytes."""
    with open(path, "rb") as source:
        return _opener(source.read(8)) is not None


def _opener(start: bytes) -> Callable[..., Any] | None:
    openers = (opener for magic, opener in _COMPRESSIONS.values() if start.startswith(magic))
    return next(openers, None)


# Files and pipes


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

    Wait a few seconds for the reader of a pipe, not forever as `open` does.

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
    except (OSError, ValueError):  # replaced by something that is not a file
        return sys.stdin.buffer


def _buffered(stream: Any) -> io.BufferedReader:
    return stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream, _PEEK)


def peek_start(stream: io.BufferedReader, encoding: str | None = None) -> bytes:
    """Return the first bytes of a stream, as UTF-8 if they are text, without consuming them."""
    start = stream.peek(_PEEK)
    if encoding is None:
        return start
    try:
        return codecs.getincrementaldecoder(encoding)("replace").decode(start).encode()
    except UnicodeError:  # such as UTF-16 that does not say which
        return start


@contextmanager
def open_output(path: str | os.PathLike[str] | None) -> Iterator[IO[bytes]]:
    """Open a binary stream for writing: standard output for None or ``-``, else a file.

    The file is replaced atomically, and compressed if its name has a compression suffix. Named
    pipes and character devices are written to directly.
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


# Reading ahead


def prefetch(items: Iterator[T]) -> Iterator[T]:
    """Yield items, preparing each next one in a background thread.

    This saves time if the loop body or the iterator releases the GIL. Items must not be None.
    """
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, items, None)
        while (item := following.result()) is not None:
            following = thread.submit(next, items, None)
            yield item


def arriving(items: Iterator[T], limit: int) -> Iterator[list[T]]:
    """Yield lists of the items that have arrived, at least one and at most `limit`.

    They are read in a background thread, which is abandoned when the process ends.
    """
    queue: Queue[Any] = Queue(limit)
    end = object()

    def read() -> None:
        error = None
        try:
            for item in items:
                queue.put((item, None))
        except BaseException as raised:
            error = raised
        queue.put((end, error))

    threading.Thread(target=read, daemon=True).start()
    last = None
    while last is not end:
        arrived = [queue.get()]
        with suppress(Empty):
            while len(arrived) < limit:
                arrived.append(queue.get_nowait())
        last, error = arrived[-1]
        if some := [item for item, _ in arrived if item is not end]:
            yield some
        if error is not None:
            raise error
