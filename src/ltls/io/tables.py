"""Tables of texts or numbers with labels: the interface of formats, and the reading of rows.

A table is read once, in batches, and never held in memory as a whole. Labels are strings in every
format, so that a model does not depend on the format.
"""

from __future__ import annotations

import difflib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, time
from decimal import Decimal
from itertools import pairwise
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from ..core.shortened import shortened
from ..core.streams import DEFAULT_LIMITS, SizeLimits
from . import formats
from .errors import ColumnError, FormatError, OnBadRow, PathLike, RowError
from .files import DataFile, OpenFile
from .formats import Format, InputKind, Sample

if TYPE_CHECKING:  # only rows need NumPy; column names do not
    from ..core.arrays import Floats
    from ..features.columns import TableColumns

_MAX_NUMBER = 3.4028234663852886e38  # of float32

# A row as a dict of its columns, or the error in it.
RecordOrError: TypeAlias = "dict[str, Any] | RowError"
# The column names of an open table, None if its format has none; and every row with its number,
# which is its line in a text file. The location of an error is filled in later.
OpenTable: TypeAlias = "tuple[list[str] | None, Iterator[tuple[int, RecordOrError]]]"
# What is written: a text and its labels; None where there are no labels at all.
LabelledText: TypeAlias = "tuple[str, list[str] | None]"


@dataclass(frozen=True)
class Columns:
    """The columns of a table that are read or written.

    Parameters
    ----------
    text : str, optional
        The text column; not needed for fastText files and plain text, which have no column names.
    label : str, optional
        The label column.
    features : sequence of str
        The numeric columns, in the order of the features; a cell may hold a list of numbers.
    separator : str, optional
        The separator between several labels in a cell. By default, a cell is one label; a list in
        JSON or Parquet is several.
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
            raise ValueError(f"the label column {self.label!r} must not also be an input column")

    @property
    def inputs(self) -> list[str]:
        """The columns that are the input of a classifier."""
        mixed = () if self.mixed is None else self.mixed.names
        return [*filter(None, (self.text,)), *self.features, *mixed]

    @property
    def names(self) -> list[str]:
        """The names of all columns that are read or written."""
        return [*self.inputs, *filter(None, (self.label,))]

    def read(self, record: dict[str, Any]) -> Any:
        """Return the input of a row: a text, the cells of mixed columns, or numbers."""
        if self.mixed is not None:
            mixed = {name: record[name] for name in self.mixed.names}
            try:
                return self.mixed.read(mixed)
            except ValueError as error:
                raise RowError("value", str(error)) from None
        if self.text:
            text = record[self.text]
            if text is None:
                return ""  # as an empty cell of CSV is
            if not isinstance(text, str):
                raise RowError("type", f"{self.text!r} is {text!r}, not a text")
            return text
        cells = {name: record[name] for name in self.features}
        _check_dense(cells)
        numbers = [_numbers(name, cell) for name, cell in cells.items()]
        return numbers[0] if len(numbers) == 1 else [each for some in numbers for each in some]


@dataclass
class Rows:
    """A batch of rows: texts, features or cells, and labels if there are any."""

    inputs: list[Any] = field(default_factory=list)
    labels: list[list[str]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.inputs)

    @classmethod
    def concatenate(cls, parts: Iterable[Rows]) -> Rows:
        """Return the rows of several batches as one."""
        rows = cls()
        for part in parts:
            rows.inputs += part.inputs
            rows.labels += part.labels
        return rows

    @property
    def X(self) -> list[str] | list[dict[str, Any]] | Floats:  # noqa: N802
        """The input of a classifier."""
        if self.inputs and isinstance(self.inputs[0], (str, dict)):
            return self.inputs
        import numpy as np

        return np.array(self.inputs, np.float32)


class TableFormat(Format, ABC):
    """A format of tables (``kind = "table"``), or of texts without column names (``"text"``).

    Attributes
    ----------
    has_labels : bool
        Whether files of this format can hold labels.
    numbered_by : {"line", "row"}
        Whether errors number lines or rows.
    """

    kind: InputKind = "table"
    has_labels: bool = True
    numbered_by: str = "line"

    @abstractmethod
    def open(self, file: OpenFile, columns: Columns, labelled: bool) -> OpenTable:
        """Begin to read some columns of a file; with `labelled`, every row needs labels."""

    @abstractmethod
    def write(self, stream: IO[bytes], rows: Iterable[LabelledText], columns: Columns) -> None:
        """Write texts with their labels."""


class Table:
    r"""A table file.

    Parameters
    ----------
    path : path
        The file, plain or compressed; ``-`` is standard input.
    format : str
        The name of a registered format of kind "table" or "text".
    columns : Columns
        The columns to read.
    labelled : bool, default=True
        Whether every row must have a label; a list of labels may be empty.
    on_bad_row, limits, encoding, again
        As in `DataFile`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from ltls.io.tables import Columns, Table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "tickets.csv")
    ...     _ = path.write_text('text,kind\n"card, lost",card\nwhat fee,fee\n')
    ...     (rows,) = Table(path, "csv", Columns("text", "kind")).batches(100)
    >>> rows.inputs, rows.labels
    (['card, lost', 'what fee'], [['card'], ['fee']])
    """

    def __init__(
        self,
        path: PathLike,
        format: str,  # noqa: A002
        columns: Columns,
        labelled: bool = True,
        on_bad_row: OnBadRow | None = None,
        limits: SizeLimits = DEFAULT_LIMITS,
        encoding: str | None = None,
        again: bool = False,
    ) -> None:
        self.format = table_format(format)
        self.columns, self.labelled = columns, labelled
        self._file = DataFile(path, limits, on_bad_row, encoding, again)

    def batches(self, size: int, n_values: float = math.inf) -> Iterator[Rows]:
        """Yield the rows in batches of at most `size` rows and about `n_values` values."""
        inputs: list[Any] = []
        labels: list[list[str]] = []
        lengths: dict[str | None, int] = {}
        n_held = 0
        with self._file.open() as file:
            names, records = self.format.open(file, self.columns, self.labelled)
            if names is not None:
                label = None if self.labelled else self.columns.label
                wanted = [each for each in self.columns.names if each != label or each in names]
                check_columns(wanted, names, self._file.path)
            for number, record in records:
                try:
                    x, own = self._row(record)
                    for name, n in self._lengths(x):
                        if not n:
                            raise RowError("fields", "no features")
                        if n != lengths.setdefault(name, n):
                            has = f"{name!r} has {n} numbers" if name else f"{n} features"
                            reason = f"{has}, but the rows before have {lengths[name]}"
                            raise RowError("fields", reason)
                except RowError as error:
                    setattr(error, self.format.numbered_by, number)
                    file.skip(error)
                    if size == 1:  # a reader of single rows is told at once
                        yield Rows()
                    continue
                file.n_good += 1
                inputs.append(x)
                labels += [] if own is None else [own]
                n_held += len(x) if self.columns.mixed is None else sum(map(_size, x.values()))
                if len(inputs) >= size or n_held >= n_values:
                    yield Rows(inputs, labels)
                    inputs, labels, n_held = [], [], 0
            file.check_rows()
        if inputs:
            yield Rows(inputs, labels)

    def _lengths(self, x: Any) -> list[tuple[str | None, int]]:
        """Return the number of features of a row, or of numbers of every vector in it."""
        if self.columns.features:
            return [(None, len(x))]
        vectors = () if self.columns.mixed is None else self.columns.mixed.vectors
        return [(name, len(x[name])) for name in vectors if x[name] is not None]

    def _row(self, record: RecordOrError) -> tuple[Any, list[str] | None]:
        """Return input and labels of a record, which may lack columns."""
        if isinstance(record, RowError):
            raise record
        try:
            return self.columns.read(record), self._labels(record)
        except KeyError as error:
            raise RowError("missing", f"it has no {error.args[0]!r}") from None

    def _labels(self, record: dict[str, Any]) -> list[str] | None:
        label, separator = self.columns.label, self.columns.separator
        if label is None or (label not in record and not self.labelled):
            return None
        cell = record[label]
        labels = labels_of(cell, separator)
        several = separator is not None or isinstance(cell, (list, tuple))
        if self.labelled and not (labels or several):
            raise RowError("missing", f"its label {label!r} is empty")
        return labels


def table_format(name: str) -> TableFormat:
    """Return a registered format of tables or texts."""
    file_format = formats.get(name, "table", "text")
    assert isinstance(file_format, TableFormat)
    return file_format


def column_names(
    path: PathLike,
    format: str | None = None,  # noqa: A002
    encoding: str | None = None,
) -> list[str] | None:
    """Return the names of the columns of a table, None if its format has none.

    By default, the format is detected, as that of a table with named columns.
    """
    with DataFile(path, encoding=encoding).open() as file:
        found = formats.get(format) if format else formats.detect(Sample(path, file.start, True))
        if not isinstance(found, TableFormat):
            return None
        return found.open(file, Columns(), labelled=False)[0]


def check_columns(
    wanted: Sequence[str], names: Sequence[str], path: PathLike | None = None
) -> None:
    """Raise an error if a table lacks one of the columns, or has two of the same name."""
    for name in wanted:
        if names.count(name) > 1:
            reason = f"column names must be unique, but the table has two columns {name!r}"
            raise FormatError(reason, path=path)
        if name not in names:
            others = [each for each in names if each not in wanted]
            close = difflib.get_close_matches(name, others, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            if len(parts := name.split(",")) > 1 and {*parts} <= {*names}:
                hint = "; repeat the option for every column"
            raise ColumnError(name, names, hint, path=path)


def labels_of(cell: Any, separator: str | None = None) -> list[str]:
    """Return the labels in a cell: a label, a list of labels, or a text to be split."""
    if separator is not None and isinstance(cell, str):
        cell = [part.strip() for part in cell.split(separator)]
    values = cell if isinstance(cell, (list, tuple)) else [cell]
    if any(isinstance(value, (dict, list)) for value in values):
        raise RowError("type", f"label {cell!r} is neither a text nor a number")
    texts = (label_text(value) for value in values if value is not None)
    return list(dict.fromkeys(filter(None, texts)))


def label_text(value: Any) -> str:
    """Return a label as text: numbers and null as in JSON, dates as in ISO 8601."""
    if isinstance(value, (str, Decimal)):
        return str(value)
    if isinstance(value, (date, time)):  # a datetime is a date
        return value.isoformat()
    try:
        return value.decode("utf-8") if isinstance(value, bytes) else json.dumps(value)
    except (TypeError, ValueError):
        reason = f"label {str(value)[:40]!r} is neither a text nor a number"
        raise RowError("type", reason) from None


def _check_dense(cells: dict[str, Any]) -> None:
    """Raise an error for a sparse row: a list of increasing indices, and one of as many values."""
    if len(cells) != 2 or not all(_is_list(cell) for cell in cells.values()):
        return
    indices, values = cells.values()
    if (
        1 < len(indices) == len(values)
        and all(isinstance(index, int) for index in indices)
        and all(a < b for a, b in pairwise([-1, *indices]))
    ):
        raise RowError(
            "value",
            f"{' and '.join(map(repr, cells))} are the indices and values of a sparse row: use "
            "an svmlight file, or --ray, which reads sparse rows from tables",
        )


def _is_list(cell: Any) -> bool:
    return isinstance(cell, (list, tuple)) or hasattr(cell, "dtype")


def _size(cell: Any) -> int:
    return len(cell) if isinstance(cell, str) or hasattr(cell, "dtype") else 1


def _numbers(name: str, cell: Any) -> Sequence[float] | Floats:
    if hasattr(cell, "dtype"):  # an array
        bad = cell[~(abs(cell) <= _MAX_NUMBER)]
        if len(bad):
            raise RowError("value", f"{name!r} has {bad[0].item()!r}, not a finite number")
        found: Floats = cell
        return found
    numbers = []
    for value in cell if isinstance(cell, (list, tuple)) else [cell]:
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not abs(number) <= _MAX_NUMBER:
            raise RowError("value", f"{name!r} is {shortened(value)}, not a finite number")
        numbers.append(number)
    return numbers
