"""Data files as the command line describes them (format, columns, bad rows), and their rows."""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.streams import arriving, display_name, is_pipe, open_input, peek_start
from ..io import formats
from ..io.delimited import Delimited
from ..io.errors import ColumnError, FormatError, OnBadRow, RowError, TooManyFeaturesError, listed
from ..io.files import expand, is_model_file
from ..io.formats import Format, Sample, ZeroBased
from ..io.npy import Npy, bad_rows, read_labels
from ..io.tables import Columns, Rows, Table, TableFormat, column_names
from ..io.tables import check_columns as check_columns_of
from .output import note, warn

if TYPE_CHECKING:
    from ..estimators.classifier import LTLSClassifier
    from ..features.columns import TableColumns

BATCH_SIZE = 1 << 14  # rows
_CHECKED_ROWS = 1000  # before slow imports
_CHUNK_SIZE = 1 << 22  # bytes of a file of sparse rows


@dataclass(kw_only=True)
class Source:
    """Data files with the options of the command line; options that were not given are None.

    All files have the same format; a name with ``*`` stands for those that match. `table` has the
    columns of texts, numbers and categories to train on. `model` will predict the rows: it knows
    its columns, and its kind of input helps to detect the format. `labels` is the file with the
    labels of vectors. `bad_rows`, if given, collects the skipped rows.
    """

    paths: Sequence[Path]
    file_format: str | None = None
    encoding: str | None = None
    text: str | None = None
    label: str | None = None
    features: str | None = None
    labels: Path | None = None
    separator: str | None = None
    zero_based: bool | None = None
    skip_bad_rows: bool = False
    table: TableColumns | None = None
    model: LTLSClassifier | None = None
    bad_rows: deque[RowError] | None = None
    format: Format = field(init=False)
    n_bad_rows: int = field(default=0, init=False)
    _first_bad: RowError | None = field(default=None, init=False)

    @classmethod
    def of(cls, options: dict[str, Any], paths: Sequence[Path], **others: Any) -> Source:
        """Return the source that the options of a command describe."""
        known = {each.name for each in fields(cls)}
        given = {name: value for name, value in options.items() if name in known}
        return cls(**{**given, **others, "paths": paths})

    def __post_init__(self) -> None:
        if self.separator == "":
            raise ValueError("--separator must not be empty; leave it out for one label per cell")
        if self.text == "":  # --text without a column
            if self.file_format not in (None, "text"):
                raise ValueError(f"--text needs a column name with --format {self.file_format}")
            self.file_format = "text"
        if self.encoding is not None:
            try:
                " ".encode(self.encoding)
            except (LookupError, UnicodeError):  # unknown, or not one of texts
                raise ValueError(
                    f"--encoding must be an encoding such as latin-1, got {self.encoding!r}"
                ) from None
        self.paths = [Path(path) for path in expand(self.paths)]
        if self.model is not None:
            self.table = self.model.model_.front_end.columns
            if self.zero_based is None:
                self.zero_based = self.model.fitted_.provenance.zero_based
        for path in self.paths:
            self._open(path)
        if self.model is not None and self.table and (self.text is not None or self.features):
            option = "--features" if self.features else "--text"
            names = ", ".join(self.table.names)
            raise ValueError(
                f"{option} does not apply to this model, which takes the columns {names}"
            )

    def _open(self, path: Path) -> None:
        """Detect the format of a file, which must be that of the others."""
        with open_input(path) as stream:
            start = peek_start(stream, self.encoding)
        name = display_name(path)
        if self.encoding is None and start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise ValueError(f"{name} is UTF-16 text: give --encoding utf-16")
        if path.is_file() and is_model_file(path):
            raise ValueError(f"{name} is a model file; give data files")
        if start.startswith(b"PK\3\4"):
            what, fix = "a spreadsheet or an archive", "save it as CSV"
            if path.suffix == ".npz":
                what, fix = "an npz archive", "save its array with numpy.save"
            raise ValueError(f"{name} is {what}, which is not supported: {fix}")
        may_be_json = formats.suffix_of(path) in (".json", ".jsonl", ".ndjson")
        if may_be_json and re.match(rb"\s*(\[\s*\{|\{\s*\n)", start):
            raise ValueError(
                f"{name} is a single JSON value: write JSON lines, one object per line, as pandas "
                "does with to_json(path, orient='records', lines=True)"
            )
        found = formats.get(self.file_format) if self.file_format else self._detected(path, start)
        note(f"{name}: format {found.name}")
        if path != self.path and found is not self.format:
            raise ValueError(
                f"{self.path} is {self.format.name} and {name} is {found.name}: files must have "
                "the same format; name it with --format"
            )
        self.format = found
        if self.labels is not None and not self.dense:
            raise ValueError(
                f"--labels is for npy files, but {name} is {found.name}, which has its own labels"
            )
        if (self.sparse or self.dense) and self._columns_named:
            hint = "; --labels FILE gives the labels, a line for every row" if self.dense else ""
            raise ValueError(
                f"--text, --label and the like name columns, but {self.format.name} files have "
                f"none{hint}"
            )

    def _detected(self, path: Path, start: bytes) -> Format:
        expects_table = not self.takes_matrix or bool(self._recorded)
        sample = Sample(path, start, self._columns_named, expects_table)
        found = formats.detect(sample)
        # A line of text with a comma looks like a table.
        guessed = found.kind == "sparse" or isinstance(found, Delimited)
        unnamed = not (self._columns_named or self._recorded or self.table)
        if not self.takes_matrix and unnamed and guessed and sample.suffix not in found.suffixes:
            return formats.get("text")
        return found

    @property
    def takes_matrix(self) -> bool:
        """Whether rows are features; without a model, they may be."""
        return self.model is None or self.model.model_.front_end.settings.takes_matrix

    @property
    def _recorded(self) -> dict[str, Any]:
        """The columns of the table that the model was trained on, if it was one."""
        return {} if self.model is None else self.model.fitted_.provenance.columns or {}

    @property
    def _columns_named(self) -> bool:
        return bool(self.text or self.label or self.features or (self.table and not self.model))

    @property
    def path(self) -> Path:
        """The first file."""
        return self.paths[0]

    @property
    def name(self) -> str:
        """The name of the file, or of the first one and how many there are, for messages."""
        more = len(self.paths) - 1
        return display_name(self.path) + (f" and {more} more" if more else "")

    @property
    def sparse(self) -> bool:
        """Whether the rows are sparse features."""
        return self.format.kind == "sparse"

    @property
    def dense(self) -> bool:
        """Whether the rows are vectors, without labels."""
        return self.format.kind == "dense"

    @property
    def has_labels(self) -> bool:
        """Whether files of this format can hold labels."""
        return not isinstance(self.format, TableFormat) or self.format.has_labels

    @property
    def base(self) -> ZeroBased:
        """Where feature indices start, as readers take it."""
        return "auto" if self.zero_based is None else self.zero_based

    def columns(self) -> Columns:
        """Return the columns to read: as given, else as in training."""
        before = Columns(**self._recorded)
        features = tuple(filter(None, (self.features or "").split(","))) or before.features
        columns = Columns(
            self.text or (None if features else before.text),
            self.label or before.label,
            features,
            self.separator or before.separator,
            self.table,
        )
        if self.format.kind == "text":  # without column names
            if self.table is not None:
                raise ValueError(
                    f"{self.name}: {self.format.name} files have no columns of numbers and "
                    "categories; give a table"
                )
            return replace(columns, text="text", label="label", features=())
        if columns.features and (columns.text or self.table):
            raise ValueError(
                "--features and --text cannot both be given here; name the columns that the model "
                "was trained on"
            )
        return columns

    def check_columns(self) -> None:
        """Raise an error if a table does not have a column that is named."""
        if self.sparse or self.dense or is_pipe(self.path):
            return
        named = self.columns().names
        names = self.column_names() if named else None
        if names is None:
            return
        try:
            check_columns_of(named, names, self.path)
        except ColumnError as error:
            if {*named} & {*names} or not isinstance(self.format, Delimited):
                raise
            raise ValueError(f"{error}; the first line must name the columns") from None

    def check_training(self) -> None:
        """Raise an error if no model can be trained: by columns, and labels of the first rows."""
        if self.sparse or self.dense:
            return
        self.check_columns()
        self._check_training_columns()
        assert isinstance(self.format, TableFormat)
        by_line = self.format.numbered_by == "line" and not self.skip_bad_rows
        if by_line and not is_pipe(self.path):
            labels = Columns(label=self.columns().label, separator=self.separator)
            table = Table(self.path, self.format.name, labels, encoding=self.encoding)
            next(table.batches(_CHECKED_ROWS), None)

    def _check_training_columns(self) -> None:
        """Raise an error for a table whose columns were not named, and list them."""
        columns = self.columns()
        if not self.has_labels:
            raise ValueError(f"{self.name}: {self.format.name} files have no labels to train on")
        inputs = "--text, --features, --number or --category"
        missing = [] if columns.inputs else [inputs]
        missing += [] if columns.label else ["--label"]
        if missing:
            names = None if is_pipe(self.path) else self.column_names()
            there = "" if names is None else f"; it has {listed(names)}"
            raise ValueError(
                f"{self.name} is a {self.format.name} table: name its columns with "
                f"{' and '.join(missing)}{there}"
            )

    def column_names(self) -> list[str] | None:
        """Return the names of the columns of the first file, None if its format has none."""
        return column_names(self.path, self.format.name, self.encoding)

    @property
    def on_bad_row(self) -> OnBadRow | None:
        """The callback of readers: None to stop at a bad row."""
        return self._skip if self.skip_bad_rows else None

    def _skip(self, error: RowError) -> None:
        self.n_bad_rows += 1
        self._first_bad = self._first_bad or error
        if self.bad_rows is not None:
            self.bad_rows.append(error)

    def report_bad_rows(self) -> None:
        """Warn of the rows that were skipped."""
        if self.n_bad_rows:
            rows = "1 bad row was" if self.n_bad_rows == 1 else f"{self.n_bad_rows:,} bad rows were"
            warn(f"{rows} skipped; the first is {self._first_bad}")

    # Rows

    def batches(
        self, labelled: bool, size: int = BATCH_SIZE
    ) -> Iterator[tuple[Any, list[list[Any]]]]:
        """Yield the input of the model in batches, with the labels of the rows if there are any."""
        assert self.model is not None
        takes = self.model.model_.front_end.name
        if self.sparse or self.dense:
            if not self.takes_matrix:
                raise ValueError(
                    f"the model takes input of the kind {takes}, but {self.name} has features "
                    f"({self.format.name}); give a table, or --text for lines of plain text"
                )
            batches = self._sparse_batches if self.sparse else self._dense_batches
            yield from batches(self.model.n_features_in_, labelled, size)
            return
        columns = self.columns()
        self._check_columns_known(columns, takes, labelled)
        try:
            for rows in self.table_batches(columns, labelled, size):
                yield rows.X, rows.labels
        except ColumnError as error:
            # Lines of plain text look like a table without the text column.
            guessed = error.column == columns.text and isinstance(self.format, Delimited)
            if self.text or not guessed:
                raise
            raise ValueError(
                f"{error}; if every line is a text, give --text without a column"
            ) from None

    def vectors(self, labelled: bool) -> tuple[Any, list[list[str]]]:
        """Return memory-mapped vectors, and the labels of their rows if `labelled`."""
        if len(self.paths) > 1:
            raise ValueError(f"one npy file can be read at a time, got {len(self.paths)}")
        if labelled and self.labels is None:
            raise ValueError(
                f"{self.name} has no labels: name a file with one line per row with --labels"
            )
        X, labels = Npy().open(self.path), []
        if self.labels is not None and labelled:
            labels = read_labels(self.labels, len(X), self.separator, self.encoding)
        bad = set()
        for error in bad_rows(X, self.path):
            if self.on_bad_row is None:
                raise error
            self.on_bad_row(error)
            bad.add(error.n_before)
        if not bad:
            return X, labels
        good = [number for number in range(len(X)) if number not in bad]
        if not good:
            reason = f"none of its {len(X)} rows can be read; the first is bad: {self._first_bad}"
            raise FormatError(reason, path=self.path)
        return X[good], [labels[number] for number in good] if labels else []

    def _dense_batches(
        self, n_features: int, labelled: bool, size: int
    ) -> Iterator[tuple[Any, list[list[Any]]]]:
        X, labels = self.vectors(labelled)
        if X.shape[1] != n_features:
            raise ValueError(
                f"{self.name} has vectors of {X.shape[1]} numbers, the model takes {n_features}"
            )
        for first in range(0, len(X), size):
            yield X[first : first + size], labels[first : first + size]

    def table_batches(
        self, columns: Columns, labelled: bool, size: int = BATCH_SIZE
    ) -> Iterator[Rows]:
        """Yield the rows of tables in batches."""
        options: dict[str, Any] = {"on_bad_row": self.on_bad_row, "encoding": self.encoding}
        for path in self.paths:
            table = Table(path, self.format.name, columns, labelled, **options)
            if is_pipe(path) and not labelled:
                # Do not hold back rows that have already arrived.
                yield from map(Rows.concatenate, arriving(table.batches(1), size))
            else:
                yield from table.batches(size)

    def _check_columns_known(self, columns: Columns, takes: str, labelled: bool) -> None:
        if not (columns.mixed or getattr(columns, takes)):
            assert self.model is not None
            what = f"rows of {self.model.n_features_in_} numbers" if self.takes_matrix else takes
            raise ValueError(
                f"the model takes {what}: name the columns of {self.name} with --{takes}"
            )
        if labelled and not self.has_labels:
            raise ValueError(
                f"{self.name}: {self.format.name} files have no labels to compare with; "
                "give a table, and its columns with --text and --label"
            )
        if labelled and not columns.label:
            raise ValueError(f"name the label column of {self.name} with --label")

    def _sparse_batches(
        self, n_features: int, labelled: bool, size: int
    ) -> Iterator[tuple[Any, list[list[Any]]]]:
        from ..io.readers import Stream

        options: dict[str, Any] = {"chunk_size": _CHUNK_SIZE, "on_bad_row": self.on_bad_row}
        try:
            for chunk in Stream(self.paths, self.format.name, n_features, self.base, **options):
                labels = [row.tolist() for row in chunk.labels()]
                for first in range(0, chunk.n_rows, size):
                    yield chunk.X[first : first + size], labels[first : first + size]
        except TooManyFeaturesError as error:
            raise ValueError(
                f"the model has {n_features} features; {self.name} has {error.n_features}"
            ) from None
        except RowError as error:
            if error.kind != "feature":
                raise
            raise ValueError(f"the model has {n_features} features; {error}") from None


def check_columns(options: dict[str, Any], path: Path) -> None:
    """Raise an error if the options of a command name a column that a regular file does not have.

    It imports nothing slow: the model that knows the other columns is loaded later.
    """
    if path.is_file():
        Source.of(options, [path], model=None).check_columns()
