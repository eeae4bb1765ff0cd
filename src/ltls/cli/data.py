"""From a file and what the command line says of it to rows for a classifier."""

from __future__ import annotations

import codecs
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.streams import called, first_line, is_pipe, reading
from .terminal import console, note, warn
from .options import SPARSE

if TYPE_CHECKING:
    from ..estimators.classifier import LTLSClassifier
    from ..io.readers import Dataset
    from ..io.tables import Columns, Table

ROWS_AT_A_TIME = 1 << 14
_PART = 1 << 22  # bytes of a file of sparse rows
_MEND = "; mend it, or pass over such rows by --skip-bad-rows"
_INTEGERS = rb"[+-]?\d+(,[+-]?\d+)*"
_SVMLIGHT = re.compile(rb"(" + _INTEGERS + rb")?(\s*qid:\d+)?(\s*\d+:\S+)*\s*(#.*)?")


@dataclass
class Source:
    """A data file, and what was said about it; None is what was not said."""

    path: Path
    format: str | None = None
    text: str | None = None
    label: str | None = None
    features: str | None = None
    separator: str | None = None
    zero_based: bool | None = None
    skip_bad_rows: bool = False
    tabular: bool = False  # whether the model is one of tables
    table: Table | None = field(default=None, init=False)
    bad_rows: int = field(default=0, init=False)
    _copy: Path | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.separator == "":
            raise ValueError("--separator must not be empty; leave it out for one label a cell")
        if self.text == "":  # --text without a column
            if self.format not in (None, "text"):
                raise ValueError(f"--text needs the name of a column for --format {self.format}")
            self.format = "text"
        with reading(self.path) as stream:
            line = first_line(stream)
        if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise ValueError(
                f"{called(self.path)} is UTF-16 text; UTF-8 is needed: "
                "iconv -f utf-16 -t utf-8 makes it that"
            )
        if self.format is None:
            named = self.text or self.label or self.features
            if _is_tensor_file(self.path):
                raise ValueError(f"{called(self.path)} is a model file, and holds no rows")
            self.format = _guess(line, bool(named), self.tabular)
            note(f"{called(self.path)}: read as {self.format}")
        if self.format in SPARSE and (self.text or self.label or self.features):
            raise ValueError(
                f"--text, --label and --features name columns, {self.format} files have none"
            )

    @property
    def sparse(self) -> bool:
        """Whether the rows are sparse features, and not those of a table."""
        return self.format in SPARSE

    @property
    def kind(self) -> Any:
        """The format of sparse rows, as readers call it."""
        return self.format

    @property
    def base(self) -> Any:
        """Where features count from, as readers call it."""
        return "auto" if self.zero_based is None else self.zero_based

    def named_file(self) -> Path:
        """Return a file with the rows: the file itself, or a copy of what can be read only once."""
        if not is_pipe(self.path):
            return self.path
        if self._copy is None:
            descriptor, name = tempfile.mkstemp(suffix=".rows")
            self._copy = Path(name)
            weakref.finalize(self, self._copy.unlink)
            with reading(self.path) as stream, open(descriptor, "wb") as copy:
                shutil.copyfileobj(stream, copy)
        return self._copy

    def columns(self, known: dict[str, Any] | None = None) -> Columns:
        """Return which columns are what: as said, else as in the training that is `known`."""
        from ..io.tables import Columns

        before = Columns(**known) if known else Columns()
        features = tuple(filter(None, (self.features or "").split(","))) or before.features
        columns = Columns(
            self.text or (None if features else before.text),
            self.label or before.label,
            features,
            self.separator or before.separator,
        )
        if self.format in ("fasttext", "text"):
            return replace(columns, text="text", label="label", features=())
        if columns.text and columns.features:
            raise ValueError("--text and --features cannot both be given: a model takes one kind")
        return columns

    def report_bad_rows(self, bad_rows: int, first: str) -> None:
        """Take note of rows that were passed over, and say so."""
        if bad_rows:
            self.bad_rows = bad_rows
            rows = "1 bad row was" if bad_rows == 1 else f"{bad_rows:,} bad rows were"
            warn(f"{rows} skipped; the first is {first}")


def _is_tensor_file(path: Path) -> bool:
    """Whether a file begins as a model does: a length of 8 bytes, then JSON."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(10)[8:] == b'{"'


def _guess(line: bytes, named: bool, tabular: bool) -> str:
    """Tell a format by the first line that is not blank.

    Where columns were `named` it is one of tables; `tabular` decides where nothing else does.
    """
    if line.startswith(b"PAR1"):
        return "parquet"
    if line.startswith(b"{"):
        return "jsonl"
    if line.startswith(b"__label__"):
        return "fasttext"
    if not named and re.fullmatch(rb"\d+\s+\d+\s+\d+\s*(#.*)?", line):
        return "xmc"
    if not named and line.strip() and _SVMLIGHT.fullmatch(line.strip()):
        return "svmlight"
    if b"\t" in line:
        return "tsv"
    return "csv" if named or tabular or b"," in line or b";" in line else "svmlight"


@dataclass
class TrainingSet:
    """What a classifier learns from: all rows of a source, or a stream of them, where y is None."""

    X: Any
    y: Any
    n_rows: int | None  # of a stream, known when it was read once
    zero_based: bool | None = None
    columns: dict[str, Any] | None = None

    def note_in(self, model: LTLSClassifier) -> None:
        """Let a model that was trained on it know how, so that other files are read alike."""
        model.verbose = 0  # who loads the model may want silence
        model._learned.zero_based, model._learned.columns = self.zero_based, self.columns


def training_set(source: Source, stream: bool | None, n_jobs: int | None) -> TrainingSet:
    """Return the rows of a source with their labels; as a stream if asked to, or if many."""
    from ..core import memory

    if not source.sparse:
        if stream:
            raise ValueError(f"--stream is for svmlight and xmc files, not for {source.format}")
        return _rows_of_table(source)
    if not memory.fits(source.path) if stream is None else stream:
        return _stream(source, n_jobs)
    data = read_sparse(source)
    _check_labels(source, len(set(data.Y.indices.tolist())))
    return TrainingSet(data.X, data.targets, data.X.shape[0], data.zero_based)


def _stream(source: Source, n_jobs: int | None) -> TrainingSet:
    from ..io.readers import Stream

    if source.skip_bad_rows:
        raise ValueError("--skip-bad-rows needs the whole file in memory; give --no-stream")
    path = source.named_file()
    with console().status("reading"), _faults_explained(source, path, None):
        rows = Stream(path, source.kind, zero_based=source.base, n_jobs=n_jobs)
    return TrainingSet(rows, None, rows.n_rows, rows.zero_based)


def _rows_of_table(source: Source) -> TrainingSet:
    rows = _all_rows(source)
    _check_labels(source, len({label for labels in rows.labels for label in labels}))
    single = all(len(labels) == 1 for labels in rows.labels)
    y = [labels[0] for labels in rows.labels] if single else rows.labels
    columns = source.columns()
    kept = {**asdict(columns), "features": list(columns.features)}
    return TrainingSet(rows.X, y, len(y), columns=kept)


def _check_labels(source: Source, n_labels: int) -> None:
    if n_labels < 2:
        where = called(source.path)
        raise ValueError(f"{where}: training needs at least 2 different labels, got {n_labels}")


def _all_rows(source: Source) -> Any:
    from ..io.tables import Rows

    columns = source.columns()
    _check_named(source, columns)
    rows = Rows()
    for batch in table_batches(source, columns, labelled=True):
        rows.texts += batch.texts
        rows.features += batch.features
        rows.labels += batch.labels
    if not rows.labels:
        raise ValueError(f"{called(source.path)}: the file has no rows")
    return rows


def _check_named(source: Source, columns: Columns) -> None:
    """Refuse a table of which nothing was said, and tell its columns."""
    from ..io.tables import column_names

    if source.format == "text":
        raise ValueError(f"{called(source.path)}: plain texts have no labels to learn from")
    needed = [
        ("--text or --features", columns.text or columns.features),
        ("--label", columns.label),
    ]
    missing = [option for option, given in needed if not given]
    if missing:
        there = ""
        if not is_pipe(source.path):
            there = f"; it has {column_names(source.path, str(source.format))}"
        raise ValueError(
            f"{called(source.path)} is a {source.format} table: name its columns with "
            f"{' and '.join(missing)}{there}"
        )


def table_batches(
    source: Source, columns: Columns, labelled: bool, size: int = ROWS_AT_A_TIME
) -> Iterator[Any]:
    """Yield the rows of a table, some at a time, and say at the end how many were bad."""
    from ..io.tables import BadRowError, Table

    table = Table(source.path, str(source.format), columns, labelled, source.skip_bad_rows)
    source.table = table
    try:
        yield from table.batches(size)
    except BadRowError as error:
        raise ValueError(f"{error}{_MEND}") from None
    source.report_bad_rows(table.bad_rows, table.first_bad)


# Rows for a model that is there


def of_tables(model: LTLSClassifier) -> bool:
    """Tell whether a model takes the rows of tables, and not sparse features."""
    return hasattr(model, "vectoriser_") or model._learned.columns is not None


def batches(
    source: Source, model: LTLSClassifier, labelled: bool, size: int = ROWS_AT_A_TIME
) -> Iterator[tuple[Any, list[list[Any]]]]:
    """Yield rows as the model takes them, some at a time, and their labels if there are any."""
    takes_text = hasattr(model, "vectoriser_")
    if source.sparse:
        if takes_text:
            raise ValueError(
                f"the model takes texts, {called(source.path)} has features ({source.format}); "
                "for plain lines of text give --text"
            )
        yield from _sparse_batches(source, model, size)
        return
    columns = source.columns(model._learned.columns)
    if not (columns.text if takes_text else columns.features):
        kind, option = ("texts", "--text") if takes_text else ("features", "--features")
        raise ValueError(
            f"the model takes {kind}: say by {option} where {called(source.path)} has them"
        )
    if labelled and source.format == "text":
        raise ValueError(
            f"{called(source.path)}: plain texts have no labels to compare with; "
            "give a table, and its columns by --text and --label"
        )
    if labelled and not columns.label:
        raise ValueError("name the column of labels with --label")
    for rows in _hinting(source, takes_text, table_batches(source, columns, labelled, size)):
        if columns.features and len(rows.features[0]) != model.n_features_in_:
            wide = len(rows.features[0])
            raise ValueError(f"the model has {model.n_features_in_} features, the columns {wide}")
        yield rows.X, rows.labels


def _hinting(source: Source, takes_text: bool, rows: Iterator[Any]) -> Iterator[Any]:
    """Yield rows; a table without the column of texts may be no table."""
    from ..io.tables import TableError

    try:
        yield from rows
    except TableError as error:
        named = not takes_text or source.text or source.format not in ("csv", "tsv")
        if named or "no column" not in str(error):
            raise
        raise TableError(f"{error}; if every line is a text, give --text alone") from None


def _sparse_batches(
    source: Source, model: LTLSClassifier, size: int
) -> Iterator[tuple[Any, list[list[Any]]]]:
    if source.zero_based is None:
        source.zero_based = model._learned.zero_based
    for data in _sparse_parts(source, model.n_features_in_):
        labels = [row.tolist() for row in data.labels()]
        for first in range(0, data.X.shape[0], size):
            yield data.X[first : first + size], labels[first : first + size]


def _sparse_parts(source: Source, n_features: int) -> Iterator[Dataset]:
    """Yield the rows of a file a part at a time, of known width."""
    from ..io.readers import Stream

    if source.skip_bad_rows:
        yield read_sparse(source, n_features)
        return
    path = source.named_file()
    with _faults_explained(source, path, n_features):
        yield from Stream(path, source.kind, n_features, source.base, chunk_size=_PART)


def read_sparse(source: Source, n_features: int | None = None) -> Dataset:
    """Read an svmlight or xmc file; with a model's number of features, if given."""
    from ..io.readers import read

    def read_rows(path: Path) -> Dataset:
        return read(path, source.kind, n_features, source.base)

    path = source.named_file()
    with console().status("reading"), _faults_explained(source, path, n_features):
        try:
            return read_rows(path)
        except ValueError as error:
            if not source.skip_bad_rows or ", line " not in str(error):
                raise
            return _without_bad_rows(source, path, read_rows)


@contextmanager
def _faults_explained(source: Source, path: Path, n_features: int | None) -> Iterator[None]:
    """Let what is wrong with rows be said in the words of the command line."""
    try:
        yield
    except ValueError as error:
        message = str(error).replace(str(path), called(source.path))
        if n_features is not None and re.search("n_features|feature index", message):
            message = f"the model has {n_features} features; {message}"
        elif ", line " in message:
            message += _MEND
        raise ValueError(message) from None


def _without_bad_rows(source: Source, path: Path, read_rows: Callable[[Path], Dataset]) -> Dataset:
    from .bad_rows import GoodLines

    lines = GoodLines(path, source.format == "xmc", read_rows)
    with tempfile.NamedTemporaryFile(suffix=".rows") as good:
        lines.copy(good.file)
        data = read_rows(Path(good.name))
    source.report_bad_rows(lines.bad_rows, lines.first_bad.replace(str(path), called(source.path)))
    return data
