"""Compression of data files: read by their first bytes, written by the suffix of their name."""

from __future__ import annotations

import bz2
import gzip
import importlib
import io
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from .size_limits import CountedInput, LimitedOutput, SizeLimits


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


# By suffix: the first bytes of such a file, and the function that opens one.
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
    """Open a file for writing, compressed if `name` has the suffix of a compression."""
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
