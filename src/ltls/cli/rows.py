"""From a data file to the input of an estimator: rows to train on, batches to predict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from rich.filesize import decimal

from ..core import memory
from ..core.prefetch import arriving
from ..core.streams import is_pipe
from ..estimators.classifier import LTLSClassifier
from ..estimators.table_classifier import TableClassifier
from ..estimators.text import TextClassifier
from ..io.delimited import Delimited
from ..io.errors import ColumnError, EmptyFileError, listed
from ..io.readers import Dataset, Stream, read
from ..io.table_stream import TableStream, targets_of
from ..io.tables import Columns, Rows, Table, TableFormat, column_names
from ..model.labels import Targets
from .messages import inform, note
from .source import Source, row_errors_explained
from .terminal import console

BATCH_SIZE = 1 << 14  # rows
_CHUNK_SIZE = 1 << 22  # bytes of a file of sparse rows
# Memory for a byte of a file: the n-grams of texts are many.
_MEMORY_PER_BYTE = {"sparse": 2.0, "numbers": 8.0, "text": 50.0}


# Rows to train on


@dataclass
class TrainingRows:
    """The rows of a file with their labels, or a stream of them, where y is None."""

    X: Any
    y: Any
    n_rows: int | None  # None if a stream was not read yet
    zero_based: bool | None = None
    columns: dict[str, Any] | None = None

    def record_in(self, estimator: LTLSClassifier) -> None:
        """Record in a fitted model how its file was read: prediction reads files the same way."""
        estimator.verbose = 0  # of the estimator that is loaded later
        estimator.model_.zero_based = self.zero_based
        estimator.model_.columns = self.columns


def training_rows(source: Source, stream: bool | None, n_jobs: int | None) -> TrainingRows:
    """Return the labelled rows of files; as a stream with --stream, or if they are too many."""
    if not source.sparse:
        _check_columns_given(source, source.columns())
    if _is_streamed(source) if stream is None else stream:
        with console().status("reading"), row_errors_explained():
            return _stream(source, n_jobs)
    if not source.sparse:
        return _table_rows(source)
    data = read_sparse(source)
    _check_labels(source, len(set(data.Y.indices.tolist())))
    return TrainingRows(data.X, data.targets, data.n_rows, data.zero_based)


def cluster_rows(source: Source) -> TrainingRows:
    """Return what is known of rows that the nodes of a cluster read."""
    columns = source.columns()
    _check_columns_given(source, columns)
    return TrainingRows(None, None, None, columns=_recorded(source, columns))


def _is_streamed(source: Source) -> bool:
    """Decide by the sizes of files and the free memory, and say so."""
    kind = "sparse" if source.sparse else "numbers" if source.columns().features else "text"
    needed = memory.needed_memory(source.paths, _MEMORY_PER_BYTE[kind])
    fits, available = memory.fits_in_memory(needed), memory.available_memory()
    free = "unknown" if available is None else decimal(available)
    facts = f"its rows take about {decimal(needed)} of memory, {free} is free"
    if fits:
        note(f"{source.name} is read into memory: {facts}")
    else:
        inform(f"{source.name} is streamed: {facts}; --no-stream reads it into memory")
    return not fits


def _stream(source: Source, n_jobs: int | None) -> TrainingRows:
    if source.sparse:
        rows = Stream(
            source.paths,
            source.format.name,
            zero_based=source.base,
            n_jobs=n_jobs,
            on_bad_row=source.on_bad_row,
        )
        return TrainingRows(rows, None, rows.n_rows, rows.zero_based)
    columns = source.columns()
    mixed = columns.mixed
    table = TableStream(
        source.paths,
        columns.text if mixed is None else mixed.text,
        columns.label,
        columns.features,
        number=() if mixed is None else mixed.number,
        category=() if mixed is None else mixed.category,
        separator=columns.separator,
        format=source.format.name,
        on_bad_row=source.on_bad_row,
        encoding=source.encoding,
    )
    return TrainingRows(table, None, None, columns=_recorded(source, columns))


def read_sparse(source: Source) -> Dataset:
    """Read all sparse rows of a file."""
    options: dict[str, Any] = {"zero_based": source.base, "on_bad_row": source.on_bad_row}
    with console().status("reading"), row_errors_explained():
        if len(source.paths) == 1:
            data = read(source.path, source.format.name, **options)
        else:
            data = Stream(source.paths, source.format.name, **options).read()
    source.report_bad_rows()
    return data


def _table_rows(source: Source) -> TrainingRows:
    columns = source.columns()
    rows = Rows.concatenate(table_batches(source, columns, labelled=True))
    if not rows.labels:
        raise EmptyFileError(path=source.path)
    _check_labels(source, len({label for labels in rows.labels for label in labels}))
    targets = targets_of(rows)
    return TrainingRows(rows.X, targets, targets.n_rows, columns=_recorded(source, columns))


def _recorded(source: Source, columns: Columns) -> dict[str, Any] | None:
    """Return columns as a model file holds them; None if the format has no names of columns."""
    if source.format.kind == "text":
        return None
    recorded = {**asdict(columns), "features": list(columns.features)}
    del recorded["mixed"]  # the model has them
    return recorded


def label_lists(targets: Targets) -> list[Any]:
    """Return the labels of rows as a list, which can be split."""
    labels = list(targets.labels)
    if not targets.multilabel:
        return labels
    return [labels[first:last] for first, last in pairwise(targets.indptr.tolist())]


def _check_labels(source: Source, n_labels: int) -> None:
    if n_labels < 2:
        raise ValueError(
            f"{source.name}: training needs at least 2 different labels, got {n_labels}"
        )


def _check_columns_given(source: Source, columns: Columns) -> None:
    """Raise an error for a table whose columns were not named, and list them."""
    if not _has_labels(source):
        raise ValueError(f"{source.name}: {source.format.name} files have no labels to train on")
    needed = [
        (
            "--text, --features, --number or --category",
            columns.text or columns.features or columns.mixed,
        ),
        ("--label", columns.label),
    ]
    missing = [option for option, given in needed if not given]
    if missing:
        names = None if is_pipe(source.path) else column_names(source.path, source.format.name)
        there = "" if names is None else f"; it has {listed(names)}"
        raise ValueError(
            f"{source.name} is a {source.format.name} table: name its columns with "
            f"{' and '.join(missing)}{there}"
        )


def _has_labels(source: Source) -> bool:
    return not isinstance(source.format, TableFormat) or source.format.has_labels


def table_batches(
    source: Source, columns: Columns, labelled: bool, size: int = BATCH_SIZE
) -> Iterator[Rows]:
    """Yield the rows of a table in batches, and warn at the end of those that were skipped."""
    with row_errors_explained():
        for path in source.paths:
            table = Table(
                path,
                source.format.name,
                columns,
                labelled,
                source.on_bad_row,
                encoding=source.encoding,
            )
            if is_pipe(path) and not labelled:
                # Rows that have arrived are not kept waiting for others.
                for parts in arriving(table.batches(1), size):
                    yield Rows.concatenate(parts)
            else:
                yield from table.batches(size)
    source.report_bad_rows()


# Rows for a fitted model


def takes_text(estimator: LTLSClassifier) -> bool:
    """Return whether the input of an estimator is texts."""
    return isinstance(estimator, TextClassifier) and not isinstance(estimator, TableClassifier)


def takes_lines(estimator: LTLSClassifier) -> bool:
    """Return whether an estimator was trained on texts without column names."""
    return takes_text(estimator) and estimator.model_.columns is None


def takes_table(estimator: LTLSClassifier) -> bool:
    """Return whether an estimator was trained on a table or on texts."""
    return isinstance(estimator, TextClassifier) or estimator.model_.columns is not None


def batches(
    source: Source, estimator: LTLSClassifier, labelled: bool, size: int = BATCH_SIZE
) -> Iterator[tuple[Any, list[list[Any]]]]:
    """Yield the input of an estimator in batches, with the labels of the rows if there are any."""
    if source.sparse:
        if isinstance(estimator, TableClassifier):
            raise ValueError(
                f"the model takes a table, {source.name} has features ({source.format.name})"
            )
        if takes_text(estimator):
            raise ValueError(
                f"the model takes texts, {source.name} has features ({source.format.name}); "
                "for lines of plain text give --text"
            )
        yield from _sparse_batches(source, estimator, size)
        return
    if isinstance(estimator, TableClassifier):
        if source.text is not None or source.features:
            option = "--features" if source.features else "--text"
            names = ", ".join(estimator.vectorizer_.columns.names)
            raise ValueError(f"{option} is not for this model, which takes the columns {names}")
        source.mixed = estimator.vectorizer_.columns
    columns = source.columns(estimator.model_.columns)
    _check_columns_known(source, columns, takes_text(estimator), labelled)
    try:
        for rows in table_batches(source, columns, labelled, size):
            if rows.features and len(rows.features[0]) != estimator.n_features_in_:
                raise ValueError(
                    f"the model has {estimator.n_features_in_} features, "
                    f"{source.name} has {len(rows.features[0])}"
                )
            yield rows.X, rows.labels
    except ColumnError as error:
        # Lines of plain text look like a table without the text column.
        if source.text or error.column != columns.text or not isinstance(source.format, Delimited):
            raise
        raise ValueError(
            f"{error}; if every line is a text, give --text without a column"
        ) from None


def _check_columns_known(source: Source, columns: Columns, texts: bool, labelled: bool) -> None:
    if not (columns.mixed or (columns.text if texts else columns.features)):
        kind, option = ("texts", "--text") if texts else ("features", "--features")
        raise ValueError(f"the model takes {kind}: name the columns of {source.name} with {option}")
    if labelled and not _has_labels(source):
        raise ValueError(
            f"{source.name}: {source.format.name} files have no labels to compare with; "
            "give a table, and its columns with --text and --label"
        )
    if labelled and not columns.label:
        raise ValueError(f"name the label column of {source.name} with --label")


def _sparse_batches(
    source: Source, estimator: LTLSClassifier, size: int
) -> Iterator[tuple[Any, list[list[Any]]]]:
    if source.zero_based is None:
        source.zero_based = estimator.model_.zero_based
    n_features = estimator.n_features_in_
    with row_errors_explained(n_features):
        chunks = Stream(
            source.path,
            source.format.name,
            n_features,
            source.base,
            chunk_size=_CHUNK_SIZE,
            on_bad_row=source.on_bad_row,
        )
        for chunk in chunks:
            labels = [row.tolist() for row in chunk.labels()]
            for first in range(0, chunk.n_rows, size):
                yield chunk.X[first : first + size], labels[first : first + size]
    source.report_bad_rows()
