"""The files of a data set: one or several, name patterns, pipes that are read repeatedly."""

from __future__ import annotations

import codecs
import glob
import io
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from ..core.streams import DEFAULT_LIMITS, SizeLimits, display_name, is_pipe, open_input, peek_start
from .errors import FormatError, OnBadRow, PathLike, RowError

Paths: TypeAlias = PathLike | Iterable[PathLike]

_BYTE_ORDER_MARK = "\ufeff"  # written by Windows before a text


def expand(paths: Paths) -> list[PathLike]:
    """Return the files, with patterns such as ``"*.csv"`` replaced by the sorted matches.

    Raises
    ------
    FileNotFoundError
        If no file matches a pattern.
    ValueError
        If `paths` is empty.

    Examples
    --------
    >>> from ltls.io.files import expand
    >>> expand(["a.csv", "-"])
    ['a.csv', '-']
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not given:
        raise ValueError("paths must name at least one file, got none")
    files: list[PathLike] = []
    for path in given:
        name = os.fspath(path)
        if os.path.exists(name) or not glob.has_magic(name):
            files.append(path)
            continue
        found = sorted(each for each in glob.glob(name, recursive=True) if os.path.isfile(each))
        if not found:
            raise FileNotFoundError(f"{name}: no file matches this pattern")
        files += found
    return files


def is_model_file(path: PathLike) -> bool:
    """Return whether a file begins like a safetensors file: an 8-byte length, then JSON."""
    with open(path, "rb") as stream:
        start = stream.read(10)
    return start[7:] == b'\0{"'  # no length takes all 8 bytes; a text does


def check_model_file(path: PathLike) -> None:
    """Raise an error if a file is missing or begins unlike a model file, without slow imports."""
    os.stat(path)
    if os.path.isfile(path) and not is_model_file(path):
        raise ValueError(f"{path} is not an ltls model file, or is cut short")


class DataFile:
    """A data file, and how to handle rows that cannot be read.

    Parameters
    ----------
    path : path-like
        A file, a pipe, or ``-`` for standard input.
    limits : SizeLimits
        How much a compressed file may hold.
    on_bad_row : callable, optional
        Called once per bad row, however often the file is read. By default, a bad row raises an
        error.
    encoding : str, optional
        Encoding of a text file; UTF-8 by default.
    again : bool, default=False
        Whether the file is read several times. If so, a pipe is copied to a temporary file first.
    """

    def __init__(
        self,
        path: PathLike,
        limits: SizeLimits = DEFAULT_LIMITS,
        on_bad_row: OnBadRow | None = None,
        encoding: str | None = None,
        again: bool = False,
    ) -> None:
        self.path, self.limits, self.encoding = path, limits, encoding
        self.on_bad_row = on_bad_row
        self._last_reported = 0
        self._copy: Any = None
        if again and is_pipe(path):
            with open_input(path, limits) as source:
                self._copy = copied(source)

    @contextmanager
    def open(self, quiet: bool = False) -> Iterator[OpenFile]:
        """Open the file for a pass over its rows; with `quiet`, bad rows are not reported."""
        with open_input(self._copy.name if self._copy else self.path, self.limits) as stream:
            yield OpenFile(stream, self, quiet)

    def report(self, error: RowError) -> None:
        """Pass a bad row to `on_bad_row`, unless it was reported before."""
        row = error.line or error.row or 0
        if row > self._last_reported and self.on_bad_row is not None:
            self._last_reported = row
            self.on_bad_row(error)


def copied(stream: io.BufferedReader) -> Any:
    """Return a temporary file with the rest of a stream."""
    copy = tempfile.NamedTemporaryFile(prefix="ltls-")  # noqa: SIM115
    shutil.copyfileobj(stream, copy)
    copy.flush()
    return copy


class OpenFile:
    """A file that a format reads once, from the first row to the last.

    Attributes
    ----------
    stream : io.BufferedReader
        The decompressed content.
    path : path-like
        The file, for messages.
    n_good, n_bad : int
        Number of rows read so far. `skip` counts bad rows, readers count good ones.
    """

    def __init__(self, stream: io.BufferedReader, data: DataFile, quiet: bool) -> None:
        self.stream, self.path = stream, data.path
        self.n_good = self.n_bad = 0
        self._data, self._quiet = data, quiet
        self._first_bad: RowError | None = None

    @property
    def start(self) -> bytes:
        """The first bytes, which are not consumed; text is converted to UTF-8."""
        return peek_start(self.stream, self._data.encoding)

    @property
    def skips_bad_rows(self) -> bool:
        """Whether bad rows are skipped."""
        return self._data.on_bad_row is not None

    def skip(self, error: RowError) -> None:
        """Report a bad row, which is skipped; or raise the error."""
        error.path = self.path
        if not self.skips_bad_rows:
            raise error
        error.n_before = self.n_good + self.n_bad
        self.n_bad += 1
        self._first_bad = self._first_bad or error
        if not self._quiet:
            self._data.report(error)

    def check_rows(self) -> None:
        """Raise an error if all rows are bad; call it after the last row."""
        if self._first_bad is not None and not self.n_good:
            first = self._first_bad
            place = "" if first.line is None else f"line {first.line}: "
            raise FormatError(
                f"none of its {self.n_bad} rows can be read; the first error is: "
                f"{place}{first.reason}",
                path=self.path,
            )

    def check_size(self, n_bytes: int, n_stored: int) -> None:
        """Raise an error if `n_bytes` is too much content for a file of `n_stored` bytes."""
        self._data.limits.check(display_name(self.path), n_bytes, n_stored)

    def lines(self) -> Iterator[str]:
        """Yield the lines of a text file; `check_decoded` finds invalid UTF-8 in them."""
        encoding = codecs.lookup(self._data.encoding or "utf-8").name
        errors = "surrogateescape" if encoding == "utf-8" else "strict"
        text = io.TextIOWrapper(self.stream, encoding, errors, newline="\n")
        try:
            if first := text.readline():
                yield first.removeprefix(_BYTE_ORDER_MARK)
                yield from text
        except UnicodeError as error:
            why = getattr(error, "reason", error)
            reason = f"not {self._data.encoding}: {why}; name another encoding"
            raise FormatError(reason, path=self.path) from None
        finally:
            if not self.stream.closed:
                text.detach()  # otherwise it would close a pipe


def check_decoded(text: str) -> None:
    """Raise an error if a text has bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        place = len(text[: error.start].encode()) + 1
        raise RowError(
            "encoding",
            f"not UTF-8 at byte {place}; name the encoding of the file, for example with "
            "--encoding latin-1",
        ) from None
