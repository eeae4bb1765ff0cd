"""Data files and what the command line says of them: format, columns, bad rows."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..core.streams import display_name, open_input, peek_start
from ..features.table import TableColumns
from ..io import formats
from ..io.delimited import Delimited
from ..io.errors import RowError, TooManyFeaturesError
from ..io.files import expand
from ..io.formats import Format, Sample
from ..io.sparse import Base, OnBadRow
from ..io.tables import Columns
from .messages import note, warn

_SKIP_HINT = "fix it, or skip such rows with --skip-bad-rows"


@dataclass(kw_only=True)
class Source:
    """Data files with the options of the command line; None is an option that was not given.

    All files have the same format; a name with ``*`` stands for those that match. `expects_table`
    says whether the model was trained on a table, and `expects_lines` whether on texts without
    column names, which helps to detect the format. `keeps_bad_rows` keeps those that are skipped.
    `mixed` are columns of texts, numbers and categories.
    """

    paths: Sequence[Path]
    format_name: str | None = None
    text: str | None = None
    label: str | None = None
    features: str | None = None
    separator: str | None = None
    zero_based: bool | None = None
    skip_bad_rows: bool = False
    expects_table: bool = False
    expects_lines: bool = False
    encoding: str | None = None
    keeps_bad_rows: bool = False
    mixed: TableColumns | None = None
    format: Format = field(init=False)
    n_bad_rows: int = field(default=0, init=False)
    bad_rows: deque[RowError] = field(default_factory=deque, init=False)
    _first_bad: RowError | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.separator == "":
            raise ValueError("--separator must not be empty; leave it out for one label per cell")
        if self.text == "":  # --text without a column
            if self.format_name not in (None, "text"):
                raise ValueError(f"--text needs a column name with --format {self.format_name}")
            self.format_name = "text"
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise ValueError(
                    f"--encoding must be an encoding such as latin-1, got {self.encoding!r}"
                ) from None
        self.paths = [Path(path) for path in expand(self.paths)]
        for path in self.paths:
            self._open(path)
        if self.sparse and self._columns_named:
            raise ValueError(
                f"--text, --label and such name columns, {self.format.name} files have none"
            )

    def _open(self, path: Path) -> None:
        """Determine the format of a file: that of the others."""
        with open_input(path) as stream:
            start = peek_start(stream, self.encoding)
        name = display_name(path)
        if self.encoding is None and start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise ValueError(f"{name} is UTF-16 text: give --encoding utf-16")
        if self.format_name is not None:
            self.format = formats.get(self.format_name)
            return
        if path.is_file() and is_model_file(path):
            raise ValueError(f"{name} is a model file, not a data file")
        sample = Sample(path, start, self._columns_named, self.expects_table)
        file_format = formats.detect(sample)
        if self.expects_lines and not self._columns_named and _may_be_lines(file_format, sample):
            file_format = formats.get("text")
        note(f"{name}: format {file_format.name} detected")
        if path != self.path and file_format is not self.format:
            raise ValueError(
                f"{self.path} is {self.format.name} and {name} is {file_format.name}: files must "
                "have the same format; name it with --format"
            )
        self.format = file_format

    @property
    def _columns_named(self) -> bool:
        return bool(self.text or self.label or self.features or self.mixed)

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
    def base(self) -> Base:
        """Where feature indices start, as readers take it."""
        return "auto" if self.zero_based is None else self.zero_based

    def columns(self, trained: dict[str, Any] | None = None) -> Columns:
        """Return the columns to read: as given, else as in training."""
        before = Columns(**trained) if trained else Columns()
        features = tuple(filter(None, (self.features or "").split(","))) or before.features
        columns = Columns(
            self.text or (None if features else before.text),
            self.label or before.label,
            features,
            self.separator or before.separator,
            self.mixed,
        )
        if self.format.kind == "text":  # without column names
            if self.mixed is not None:
                raise ValueError(
                    f"{self.name}: {self.format.name} files have no columns of numbers and "
                    "categories; give a table"
                )
            return replace(columns, text="text", label="label", features=())
        if columns.text and columns.features:
            raise ValueError(
                "--text and --features cannot both be given: a model takes texts or numbers; "
                "--number goes with --text"
            )
        if columns.mixed is not None and (columns.text or columns.features):
            option = "--text" if columns.text else "--features"
            raise ValueError(f"{option} cannot be given with columns of numbers and categories")
        return columns

    # Bad rows

    @property
    def on_bad_row(self) -> OnBadRow | None:
        """The callback of readers: None to stop at a bad row."""
        return self._skip if self.skip_bad_rows else None

    def _skip(self, error: RowError) -> None:
        self.n_bad_rows += 1
        self._first_bad = self._first_bad or error
        if self.keeps_bad_rows:
            self.bad_rows.append(error)

    def report_bad_rows(self) -> None:
        """Warn of the rows that were skipped."""
        if self.n_bad_rows:
            rows = "1 bad row was" if self.n_bad_rows == 1 else f"{self.n_bad_rows:,} bad rows were"
            warn(f"{rows} skipped; the first is {self._first_bad}")


def _may_be_lines(file_format: Format, sample: Sample) -> bool:
    """Return whether a file may be lines of text, as most lines with a comma are."""
    guessed = file_format.kind == "sparse" or isinstance(file_format, Delimited)
    return guessed and sample.suffix not in file_format.suffixes


@contextmanager
def row_errors_explained(n_features: int | None = None) -> Iterator[None]:
    """Add to the errors of readers what the user can do; `n_features` is that of the model."""
    try:
        yield
    except RowError as error:
        if n_features is not None and error.kind == "feature":
            raise ValueError(f"the model has {n_features} features; {error}") from None
        raise ValueError(f"{error}; {_SKIP_HINT}") from None
    except TooManyFeaturesError as error:
        name = "the file" if error.path is None else display_name(error.path)
        raise ValueError(
            f"the model has {n_features} features; {name} has {error.n_features}"
        ) from None


def is_model_file(path: Path) -> bool:
    """Return whether a file begins as a safetensors file does: a length of 8 bytes, then JSON."""
    with path.open("rb") as stream:
        return stream.read(10)[8:] == b'{"'
