"""Files as bytes: plain or compressed, told by their first bytes, or standard input."""

from __future__ import annotations

import bz2
import gzip
import importlib
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any


def _open_zstd(file: Any, mode: str) -> Any:
    try:
        home = "compression" if sys.version_info >= (3, 14) else "backports"
        zstd = importlib.import_module(f"{home}.zstd")
    except ImportError:
        raise ValueError(
            "zstd files need the package backports.zstd, or Python 3.14: pip install ltls[zstd]"
        ) from None
    return zstd.open(file, mode)


# By suffix: the first bytes of such a file, and what opens one.
_COMPRESSIONS: dict[str, tuple[bytes, Callable[..., Any]]] = {
    ".gz": (b"\x1f\x8b", gzip.open),
    ".xz": (b"\xfd7zXZ\x00", lzma.open),
    ".bz2": (b"BZh", bz2.open),
    ".zst": (b"\x28\xb5\x2f\xfd", _open_zstd),
}


@contextmanager
def opened(name: str) -> Iterator[IO[bytes]]:
    """Open a file to read what it holds, unpacked; ``-`` is standard input.

    A damaged file is a ValueError with its name.
    """
    with damage_named(name), packed(name) as source:
        stream = unpacked(source)
        try:
            yield stream
        finally:
            if stream is not source:
                stream.close()


def unpacked(source: Any) -> Any:
    """Return a stream of what another one holds, which is that one itself unless it is packed."""
    opener = _opener(source.peek(8))
    return source if opener is None else opener(source, "rb")


@contextmanager
def damage_named(name: str) -> Iterator[None]:
    """Let a damaged file be a ValueError with its name."""
    try:
        yield
    except (EOFError, lzma.LZMAError, zlib.error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the system's own
        raise _damaged(name, error) from error
    except Exception as error:
        if type(error).__name__ != "ZstdError":  # of a module that may not be there
            raise
        raise _damaged(name, error) from error


def opened_to_write(path: str | os.PathLike[str], name: str) -> IO[bytes]:
    """Open a file to write what it shall hold, to be packed where `name` ends in .gz and such."""
    _, opener = _COMPRESSIONS.get(os.path.splitext(name)[1], (b"", open))
    stream: IO[bytes] = opener(path, "wb")
    return stream


def is_packed_name(name: str) -> bool:
    """Tell whether a file's name ends in .gz and such."""
    return os.path.splitext(name)[1] in _COMPRESSIONS


def is_compressed(path: str | os.PathLike[str]) -> bool:
    """Tell whether what a file holds is packed."""
    with open(path, "rb") as source:
        return _opener(source.read(8)) is not None


def _opener(start: bytes) -> Callable[..., Any] | None:
    openers = (opener for magic, opener in _COMPRESSIONS.values() if start.startswith(magic))
    return next(openers, None)


@contextmanager
def packed(name: str) -> Iterator[Any]:
    """Open a file to read its bytes as they are; ``-`` is standard input."""
    if name == "-":
        yield sys.stdin.buffer
        return
    with open(name, "rb") as source:
        yield source


def _damaged(name: str, error: Exception) -> ValueError:
    return ValueError(f"{name}: the compressed file is cut short or damaged: {error}")
