"""Limits on what a stored file may become: a few kilobytes can hold gigabytes of zeros."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

_UNCHECKED = 1 << 26  # decoded bytes from which on the ratio counts
_PIECE = 1 << 20  # bytes that are decompressed between two checks


@dataclass(frozen=True)
class SizeLimits:
    r"""How much a compressed file or a Parquet file may hold.

    Parameters
    ----------
    max_ratio : float, default=250
        Largest ratio of decoded to stored bytes, from 64 MiB of decoded bytes on. Files of rows
        have ratios of 3 to 20.
    max_bytes : int or None, default=None
        Largest number of decoded bytes; None for any.

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
        """Raise an error if `n_bytes` are too many for a file, of which `n_stored` were read."""
        if self.max_bytes is not None and n_bytes > self.max_bytes:
            raise FileTooLargeError(path, f"more than max_bytes={self.max_bytes:,} bytes")
        if n_bytes > _UNCHECKED and n_bytes > self.max_ratio * n_stored:
            raise FileTooLargeError(path, f"more than {self.max_ratio:g} times its size")


DEFAULT_LIMITS = SizeLimits()


class FileTooLargeError(ValueError):
    """A file holds more than `SizeLimits` permit.

    Attributes
    ----------
    path : str
        The file, as messages name it.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"{self.path}: decoded it is {self.reason}; if it is genuine, store it uncompressed"


class CountedInput:
    """A binary stream that counts the bytes which are read from it."""

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
