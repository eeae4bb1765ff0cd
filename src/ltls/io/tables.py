"""Tables of texts or numbers with labels: CSV, TSV, JSON lines, fastText, Parquet, plain lines.

A table is walked through once, some rows at a time, and never held as a whole. Labels are strings,
whatever the format, so that a model means the same in all of them.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.streams import called, first_line, is_pipe, reading

LABEL = "__label__"  # what fastText's labels begin with
_MOST_NAMED = 20  # columns in a message
_LARGEST_NUMBER = float(np.finfo(np.float32).max)


class TableError(ValueError):
    """A table lacks a column, or is none."""


class BadRowError(ValueError):
    """A row that cannot be read; its message says which and why."""


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are what.

    Parameters
    ----------
    text : str, optional
        The column of texts. fastText files and plain lines have no columns, and need no names.
    label : str, optional
        The column of labels.
    features : sequence of str
        The columns of numbers, in the order of the features; a cell may hold a list of them.
    separator : str, optional
        What stands between the labels of a cell; by default a cell is one label, and lists of
        JSON and Parquet are several.
    """

    text: str | None = None
    label: str | None = None
    features: Sequence[str] = ()
    separator: str | None = None

    @property
    def names(self) -> list[str]:
        """All columns that are named."""
        return [*filter(None, (self.text, self.label)), *self.features]


@dataclass
class Rows:
    """Some rows: their texts or their features, and their labels if there is such a column."""

    texts: list[str] = field(default_factory=list)
    features: list[list[float]] = field(default_factory=list)
    labels: list[list[str]] = field(default_factory=list)

    @property
    def X(self) -> list[str] | npt.NDArray[np.float32]:  # noqa: N802 - the name of the field
        """What a classifier takes."""
        return self.texts if self.texts else np.array(self.features, np.float32)


@dataclass
class Table:
    r"""A file of rows.

    Parameters
    ----------
    path : path
        The file, plain or compressed; ``-`` is standard input.
    format : {"csv", "tsv", "jsonl", "fasttext", "parquet", "text"}
        ``text`` is one text a line.
    columns : Columns
        Columns to read.
    labelled : bool, default=True
        Whether every row must have what it needs to be learned from: a label, unless cells hold
        lists of them, which may be empty.
    skip_bad_rows : bool, default=False
        Pass over rows that cannot be read, and count them, instead of raising an error.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from ltls.io.tables import Columns, Table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "tickets.csv")
    ...     _ = path.write_text('text,kind\n"card, lost",card\nwhat fee,fee\n')
    ...     (rows,) = Table(path, "csv", Columns("text", "kind")).batches(100)
    >>> rows.texts, rows.labels
    (['card, lost', 'what fee'], [['card'], ['fee']])
    """

    path: str | os.PathLike[str]
    format: str
    columns: Columns
    labelled: bool = True
    skip_bad_rows: bool = False
    bad_rows: int = 0
    first_bad: str = ""

    def batches(self, size: int) -> Iterator[Rows]:
        """Yield the rows, `size` at a time."""
        rows = Rows()
        wide = 0
        for place, record in self.records():
            try:
                if isinstance(record, BadRowError):
                    raise record
                text, features, labels = self._row(record)
                if self.columns.features:
                    wide = wide or len(features)
                    if len(features) != wide:
                        raise BadRowError(f"{len(features)} features, the rows before have {wide}")
            except BadRowError as error:
                self._bad(f"{called(self.path)}, {place}: {error}")
                continue
            if text is not None:
                rows.texts.append(text)
            if self.columns.features:
                rows.features.append(features)
            if labels is not None:
                rows.labels.append(labels)
            if len(rows.texts) >= size or len(rows.features) >= size:
                yield rows
                rows = Rows()
        if rows.texts or rows.features:
            yield rows

    def _bad(self, message: str) -> None:
        if not self.skip_bad_rows:
            raise BadRowError(message)
        self.bad_rows += 1
        self.first_bad = self.first_bad or message

    def _row(self, record: dict[str, Any]) -> tuple[str | None, list[float], list[str] | None]:
        """Return a record's text, features and labels; records may lack columns."""
        for name in self.columns.names:
            if name not in record and (self.labelled or name != self.columns.label):
                raise BadRowError(f"it has no {name!r}")
        text = record.get(self.columns.text) if self.columns.text else None
        if self.columns.text and not isinstance(text, str):
            raise BadRowError(f"{self.columns.text!r} is {text!r}, not a text")
        features = [n for name in self.columns.features for n in _numbers(name, record[name])]
        labels = None
        if self.columns.label is not None and self.columns.label in record:
            labels = self._labels(record[self.columns.label])
            if not labels and self.labelled and self.format == "fasttext":
                raise BadRowError(f"it has no {LABEL}")
            if not labels and self.labelled and not self._several(record[self.columns.label]):
                raise BadRowError(f"its label {self.columns.label!r} is empty")
        return text, features, labels

    def _several(self, cell: Any) -> bool:
        return self.columns.separator is not None or isinstance(cell, (list, tuple))

    def _labels(self, cell: Any) -> list[str]:
        if self.columns.separator is not None and isinstance(cell, str):
            cell = [part.strip() for part in cell.split(self.columns.separator)]
        values = cell if isinstance(cell, (list, tuple)) else [cell]
        if any(isinstance(value, (dict, list)) for value in values):
            raise BadRowError(f"label {cell!r} is neither a text nor a number")
        texts = (value if isinstance(value, str) else json.dumps(value) for value in values)
        return list(dict.fromkeys(text for text in texts if text not in ("", "null")))

    # Records: a dict of the columns of every row, and where it stands.

    def records(self) -> Iterator[tuple[str, dict[str, Any] | BadRowError]]:
        """Yield every row as a dict, or as the error it is, with its place in the file."""
        if self.format == "parquet":
            yield from self._parquet()
            return
        with reading(self.path) as stream:
            if self.format in ("csv", "tsv"):
                yield from self._delimited(stream)
            elif self.format == "jsonl":
                yield from self._json_lines(stream)
            else:
                yield from self._plain_lines(stream)

    def _delimited(
        self, stream: io.BufferedReader
    ) -> Iterator[tuple[str, dict[str, Any] | BadRowError]]:
        csv.field_size_limit(2**31 - 1)
        delimiter = "\t" if self.format == "tsv" else _delimiter(first_line(stream))
        lines = _Lines(stream)
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        try:
            header = next(reader, None)
        except csv.Error as error:
            raise TableError(f"{called(self.path)}, line 1: {error}") from None
        if header is None:
            raise TableError(f"{called(self.path)}: the file has no rows")
        self._check_columns(header)
        while True:
            place = f"line {reader.line_num + 1}"
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                open_quote = "unexpected end" in str(error)
                yield place, BadRowError("a quote is never closed" if open_quote else str(error))
                continue
            if not cells:
                continue
            if lines.fault:
                yield place, BadRowError(lines.fault)
                lines.fault = ""
            elif len(cells) != len(header):
                yield place, BadRowError(f"{len(cells)} fields, the header has {len(header)}")
            else:
                yield place, dict(zip(header, cells, strict=True))

    def _json_lines(
        self, stream: io.BufferedReader
    ) -> Iterator[tuple[str, dict[str, Any] | BadRowError]]:
        first = True
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            place = f"line {number}"
            try:
                record = json.loads(line.strip())
            except json.JSONDecodeError as error:
                yield place, BadRowError(f"not JSON: {error.msg} at character {error.pos + 1}")
                continue
            except (ValueError, RecursionError) as error:  # not UTF-8, or nested too deeply
                yield place, BadRowError(f"not JSON: {error}")
                continue
            if not isinstance(record, dict):
                yield place, BadRowError(f"a JSON object is needed, got {str(record)[:40]}")
                continue
            if first:
                self._check_columns(list(record))
                first = False
            yield place, record

    def _plain_lines(
        self, stream: io.BufferedReader
    ) -> Iterator[tuple[str, dict[str, Any] | BadRowError]]:
        lines = _Lines(stream)
        text, label = self.columns.text or "text", self.columns.label or "label"
        for number, line in enumerate(lines, 1):
            place = f"line {number}"
            line = line.rstrip("\r\n")
            if lines.fault:
                yield place, BadRowError(lines.fault)
                lines.fault = ""
            elif self.format == "text":
                yield place, {text: line}
            elif line.strip():
                words = line.split(" ")
                labels = [word[len(LABEL) :] for word in words if word.startswith(LABEL)]
                rest = " ".join(word for word in words if not word.startswith(LABEL))
                yield place, {text: rest.strip(), label: labels}

    def _parquet(self) -> Iterator[tuple[str, dict[str, Any] | BadRowError]]:
        parquet = pyarrow("parquet")
        with reading(self.path) as stream:
            # Its table of contents is at the end: what cannot be searched is read whole.
            seekable = type(stream.raw) is io.FileIO and not is_pipe(self.path)
            source = stream if seekable else io.BytesIO(stream.read())
            try:
                file = parquet.ParquetFile(source)
            except (ValueError, OSError) as error:  # ArrowInvalid is a ValueError
                raise TableError(f"{called(self.path)}: not a Parquet file: {error}") from None
            names = file.schema_arrow.names
            self._check_columns(names)
            wanted = [name for name in self.columns.names if name in names]
            number = 0
            for batch in file.iter_batches(columns=wanted):
                for record in batch.to_pylist():
                    number += 1
                    yield f"row {number}", record

    def _check_columns(self, names: Sequence[str]) -> None:
        """Refuse a table that lacks a column, and say which there are."""
        for name in self.columns.names:
            if name in names or (name == self.columns.label and not self.labelled):
                continue
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise TableError(
                f"{called(self.path)}: no column {name!r}, only {_listed(names)}{hint}"
            )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(map(repr, names[:_MOST_NAMED])) + more


class _Lines:
    """The lines of a UTF-8 file; `fault` says what is wrong with the last one."""

    def __init__(self, stream: Iterable[bytes]) -> None:
        self._stream = iter(stream)
        self._first = True
        self.fault = ""

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = next(self._stream)
        if self._first:
            line = line.removeprefix(b"\xef\xbb\xbf")  # Windows' mark of UTF-8
            self._first = False
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            self.fault = f"not UTF-8 at byte {error.start + 1}"
            return line.decode("utf-8", "replace")


def column_names(path: str | os.PathLike[str], file_format: str) -> str:
    """List the columns of a table, for a message."""
    table = Table(path, file_format, Columns())
    if file_format == "parquet":
        with reading(path) as stream:
            return _listed(pyarrow("parquet").ParquetFile(io.BytesIO(stream.read())).schema.names)
    for _, record in table.records():
        if isinstance(record, dict):
            return _listed(list(record))
    return "none"


def pyarrow(module: str) -> Any:
    """Import a part of pyarrow, which only Parquet needs."""
    import importlib

    try:
        return importlib.import_module(f"pyarrow.{module}")
    except ImportError:
        raise TableError("Parquet files need pyarrow: pip install 'ltls[parquet]'") from None


def _delimiter(header: bytes) -> str:
    """Return what stands between the fields of a CSV file: some countries have semicolons."""
    return max(",;", key=lambda delimiter: header.count(delimiter.encode()))


def _numbers(name: str, cell: Any) -> list[float]:
    numbers = []
    for value in cell if isinstance(cell, (list, tuple)) else [cell]:
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not abs(number) <= _LARGEST_NUMBER:
            raise BadRowError(f"{name!r} is {value!r}, not a finite number")
        numbers.append(number)
    return numbers
