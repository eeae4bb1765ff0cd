"""Tables of texts or numbers with labels: what a format provides, and how rows are read from it.

A table is read once, in batches, and never held as a whole. Labels are strings in every format,
so that a model means the same in all of them.
"""

from __future__ import annotations

import difflib
import io
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, time
from decimal import Decimal
from itertools import pairwise
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..core.size_limits import DEFAULT_LIMITS, SizeLimits
from ..core.streams import open_input
from ..features.table import TableColumns
from . import formats
from .errors import ColumnError, FormatError, NoGoodRowsError, PathLike, RowError
from .formats import Format, Kind
from .sparse import OnBadRow

_MAX_NUMBER = float(np.finfo(np.float32).max)

# A row as a dict of its columns, or what is wrong with it.
Record: TypeAlias = "dict[str, Any] | RowError"
# What is written: a text and its labels; None where there are no labels at all.
LabelledText: TypeAlias = "tuple[str, list[str] | None]"


@dataclass(frozen=True)
class Columns:
    """The columns of a table that are read or written.

    Parameters
    ----------
    text : str, optional
        The text column. fastText files and plain lines have no column names, and need none.
    label : str, optional
        The label column.
    features : sequence of str
        The numeric columns, in the order of the features; a cell may hold a list of numbers.
    separator : str, optional
        The separator between several labels in a cell; by default a cell is one label, and a list
        of JSON or Parquet is several.
    mixed : TableColumns, optional
        Columns of texts, numbers and categories, instead of `text` and `features`.
    """

    text: str | None = None
    label: str | None = None
    features: Sequence[str] = ()
    separator: str | None = None
    mixed: TableColumns | None = None

    def __post_init__(self) -> None:
        if self.label is not None and self.names.count(self.label) > 1:
            raise ValueError(f"the label column {self.label!r} must not be an input column too")

    @property
    def names(self) -> list[str]:
        """All columns that are named."""
        mixed = () if self.mixed is None else self.mixed.names
        return [*filter(None, (self.text, self.label)), *self.features, *mixed]


@dataclass
class Rows:
    """A batch of rows: texts, features or cells, and labels if there is a label column."""

    texts: list[str] = field(default_factory=list)
    features: list[list[float]] = field(default_factory=list)
    labels: list[list[str]] = field(default_factory=list)
    cells: list[dict[str, Any]] = field(default_factory=list)

    def __len__(self) -> int:
        return max(len(self.texts), len(self.features), len(self.cells))

    @classmethod
    def concatenate(cls, parts: Iterable[Rows]) -> Rows:
        """Return the rows of several batches as one."""
        rows = cls()
        for part in parts:
            rows.texts += part.texts
            rows.features += part.features
            rows.labels += part.labels
            rows.cells += part.cells
        return rows

    @property
    def X(self) -> list[str] | list[dict[str, Any]] | npt.NDArray[np.float32]:  # noqa: N802
        """The input of a classifier."""
        if self.cells:
            return self.cells
        return self.texts if self.texts else np.array(self.features, np.float32)


@dataclass
class TableReader:
    """An open table.

    Parameters
    ----------
    names : list of str, or None
        The names of its columns; None if the format has no names.
    records : iterator of (int, dict or RowError)
        Every row with its number: its line in a text file. A row that cannot be read is a
        `RowError`, whose place is filled in later.
    numbered_by : {"line", "row"}, default="line"
        What the numbers count.
    """

    names: list[str] | None
    records: Iterator[tuple[int, Record]]
    numbered_by: str = "line"


class TableFormat(Format, ABC):
    """A format of tables (``kind = "table"``), or of texts without column names (``"text"``).

    Attributes
    ----------
    has_labels : bool
        Whether files of this format can hold labels.
    """

    kind: Kind = "table"
    has_labels: bool = True

    @abstractmethod
    def open(
        self, stream: io.BufferedReader, path: PathLike, columns: Columns, labelled: bool
    ) -> TableReader:
        """Open the file for reading.

        Parameters
        ----------
        stream : io.BufferedReader
            The decompressed content.
        path : path
            The file, for messages and for readers that need to seek.
        columns : Columns
            The columns that will be used.
        labelled : bool
            Whether every row must have labels.
        """

    @abstractmethod
    def write(self, stream: IO[bytes], rows: Iterable[LabelledText], columns: Columns) -> None:
        """Write texts with their labels."""


@dataclass
class Table:
    r"""A table file, read once.

    Parameters
    ----------
    path : path
        The file, plain or compressed; ``-`` is standard input.
    format : str
        The name of a registered format of kind "table" or "text".
    columns : Columns
        The columns to read.
    labelled : bool, default=True
        Whether every row must have a label, unless its cell holds a list, which may be empty.
    on_bad_row : callable, optional
        Called with the `RowError` of every row that cannot be read, which is then skipped. By
        default the error is raised.
    limits : SizeLimits, optional
        How much a compressed file may hold.
    name : path, optional
        What errors call the file, if `path` is a copy of it.
    encoding : str, optional
        That of a text file; UTF-8 by default.

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

    path: PathLike
    format: str
    columns: Columns
    labelled: bool = True
    on_bad_row: OnBadRow | None = None
    limits: SizeLimits = DEFAULT_LIMITS
    name: PathLike | None = None
    encoding: str | None = None

    def batches(self, size: int, n_values: float = math.inf) -> Iterator[Rows]:
        """Yield the rows in batches of `size`, or of fewer with about `n_values` values.

        A value is a character of a text, a number, or another cell.
        """
        rows, n_features, n_good, held = Rows(), 0, 0, 0
        n_bad, first_bad = 0, None
        with open_input(self.path, self.limits, self.encoding) as stream:
            name = self.path if self.name is None else self.name
            reader = table_format(self.format).open(stream, name, self.columns, self.labelled)
            self._check_columns(reader.names)
            for number, record in reader.records:
                try:
                    text, features, labels, cells = self._row(record)
                    n_features = n_features or len(features)
                    if len(features) != n_features:
                        reason = f"{len(features)} features, the rows before have {n_features}"
                        raise RowError("fields", reason)
                except RowError as error:
                    error.path = name
                    setattr(error, reader.numbered_by, number)
                    if self.on_bad_row is None:
                        raise
                    error.n_before = n_good + n_bad
                    self.on_bad_row(error)
                    n_bad, first_bad = n_bad + 1, first_bad or error
                    if size == 1:  # whoever waits for single rows also waits for this one
                        yield Rows()
                    continue
                n_good += 1
                if text is not None:
                    rows.texts.append(text)
                if self.columns.features:
                    rows.features.append(features)
                if labels is not None:
                    rows.labels.append(labels)
                if cells:
                    rows.cells.append(cells)
                held += len(text or "") + len(features) + sum(map(_size, cells.values()))
                if len(rows) >= size or held >= n_values:
                    yield rows
                    rows, held = Rows(), 0
        if first_bad is not None and not n_good:
            raise NoGoodRowsError(n_bad, first_bad, path=name)
        if len(rows):
            yield rows

    def _check_columns(self, names: Sequence[str] | None) -> None:
        """Raise an error if a column is missing."""
        for name in self.columns.names if names is not None else ():
            assert names is not None
            if list(names).count(name) > 1:
                reason = f"the column {name!r} must have a name of its own, the table has two"
                raise FormatError(reason, path=self.name or self.path)
            if name in names or (name == self.columns.label and not self.labelled):
                continue
            others = [each for each in names if each not in self.columns.names]
            close = difflib.get_close_matches(name, others, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ColumnError(name, names, hint, path=self.name or self.path)

    def _row(
        self, record: Record
    ) -> tuple[str | None, list[float], list[str] | None, dict[str, Any]]:
        """Return text, features, labels and mixed cells of a record, which may lack columns."""
        if isinstance(record, RowError):
            raise record
        columns = self.columns
        for name in columns.names:
            if name not in record and (self.labelled or name != columns.label):
                raise RowError("missing", f"it has no {name!r}")
        text = record.get(columns.text) if columns.text else None
        if columns.text and not isinstance(text, str):
            raise RowError("type", f"{columns.text!r} is {text!r}, not a text")
        _check_dense([record[name] for name in columns.features], columns.features)
        features = [n for name in columns.features for n in _numbers(name, record[name])]
        try:
            cells = {} if columns.mixed is None else columns.mixed.read(record)
        except ValueError as error:
            raise RowError("value", str(error)) from None
        labels = None
        if columns.label is not None and columns.label in record:
            cell = record[columns.label]
            labels = self._labels(cell)
            several = columns.separator is not None or isinstance(cell, (list, tuple))
            if not labels and self.labelled and not several:
                raise RowError("missing", f"its label {columns.label!r} is empty")
        return text, features, labels, cells

    def _labels(self, cell: Any) -> list[str]:
        if self.columns.separator is not None and isinstance(cell, str):
            cell = [part.strip() for part in cell.split(self.columns.separator)]
        values = cell if isinstance(cell, (list, tuple)) else [cell]
        if any(isinstance(value, (dict, list)) for value in values):
            raise RowError("type", f"label {cell!r} is neither a text nor a number")
        texts = map(label_text, values)
        return list(dict.fromkeys(text for text in texts if text not in ("", "null")))


def table_format(name: str) -> TableFormat:
    """Return a registered format of tables or texts."""
    file_format = formats.FORMATS.get(name)
    if not isinstance(file_format, TableFormat):
        known = formats.names("table", "text")
        raise ValueError(f"format must be one of {known}, got {name!r}")
    return file_format


def column_names(path: PathLike, name: str) -> list[str] | None:
    """Return the names of the columns of a table, None if its format has none."""
    with open_input(path) as stream:
        return table_format(name).open(stream, path, Columns(), labelled=False).names


def label_text(value: Any) -> str:
    """Return a label as text: numbers and null as in JSON, dates as in ISO 8601."""
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (date, time)):  # a datetime is a date
        return value.isoformat()
    try:
        return value.decode("utf-8") if isinstance(value, bytes) else json.dumps(value)
    except (TypeError, ValueError):
        reason = f"label {str(value)[:40]!r} is neither a text nor a number"
        raise RowError("type", reason) from None


def _check_dense(cells: list[Any], names: Sequence[str]) -> None:
    """Raise an error for a sparse row: a list of increasing indices, and one of as many values."""
    if len(cells) != 2 or not all(isinstance(cell, (list, tuple)) for cell in cells):
        return
    indices, values = cells
    increasing = all(isinstance(a, int) and a < b for a, b in pairwise(indices))
    if 1 < len(indices) == len(values) and increasing and indices[0] >= 0:
        raise RowError(
            "value",
            f"{names[0]!r} and {names[1]!r} are the indices and values of a sparse row, which "
            "only --ray reads from tables: write such rows as svmlight",
        )


def _size(cell: Any) -> int:
    return len(cell) if isinstance(cell, str) else 1


def _numbers(name: str, cell: Any) -> list[float]:
    numbers = []
    for value in cell if isinstance(cell, (list, tuple)) else [cell]:
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not abs(number) <= _MAX_NUMBER:
            raise RowError("value", f"{name!r} is {repr(value)[:40]}, not a finite number")
        numbers.append(number)
    return numbers
