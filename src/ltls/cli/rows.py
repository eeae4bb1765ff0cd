"""From a data file to the input of an estimator: rows to train on, batches to predict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ..core import memory
from ..core.streams import is_pipe
from ..estimators.classifier import LTLSClassifier
from ..io.delimited import Delimited
from ..io.errors import ColumnError, EmptyFileError, listed
from ..io.readers import Dataset, Stream, read
from ..io.tables import Columns, Rows, Table, TableFormat, column_names
from .source import Source, row_errors_explained
from .terminal import console

BATCH_SIZE = 1 << 14  # rows
_CHUNK_SIZE = 1 << 22  # bytes of a file of sparse rows


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
    """Return the labelled rows of a file; as a stream with --stream, or if they are too many."""
    if not source.sparse:
        if stream:
            raise ValueError(f"--stream is for sparse features, not for {source.format.name} files")
        return _table_rows(source)
    if not memory.fits_in_memory(source.path) if stream is None else stream:
        with console().status("reading"), row_errors_explained():
            rows = Stream(
                source.path,
                source.format.name,
                zero_based=source.base,
                n_jobs=n_jobs,
                on_bad_row=source.on_bad_row,
            )
        return TrainingRows(rows, None, rows.n_rows, rows.zero_based)
    data = read_sparse(source)
    _check_labels(source, len(set(data.Y.indices.tolist())))
    return TrainingRows(data.X, data.targets, data.n_rows, data.zero_based)


def read_sparse(source: Source) -> Dataset:
    """Read all sparse rows of a file."""
    with console().status("reading"), row_errors_explained():
        data = read(
            source.path,
            source.format.name,
            zero_based=source.base,
            on_bad_row=source.on_bad_row,
        )
    source.report_bad_rows()
    return data


def _table_rows(source: Source) -> TrainingRows:
    columns = source.columns()
    _check_columns_given(source, columns)
    rows = Rows()
    for batch in table_batches(source, columns, labelled=True):
        rows.texts += batch.texts
        rows.features += batch.features
        rows.labels += batch.labels
    if not rows.labels:
        raise EmptyFileError(path=source.path)
    _check_labels(source, len({label for labels in rows.labels for label in labels}))
    single = all(len(labels) == 1 for labels in rows.labels)
    y = [labels[0] for labels in rows.labels] if single else rows.labels
    recorded = {**asdict(columns), "features": list(columns.features)}
    return TrainingRows(rows.X, y, len(y), columns=recorded)


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
        ("--text or --features", columns.text or columns.features),
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
    table = Table(source.path, source.format.name, columns, labelled, source.on_bad_row)
    with row_errors_explained():
        yield from table.batches(size)
    source.report_bad_rows()


# Rows for a fitted model


def takes_text(estimator: LTLSClassifier) -> bool:
    """Return whether the input of an estimator is texts."""
    return hasattr(estimator, "vectorizer_")


def takes_table(estimator: LTLSClassifier) -> bool:
    """Return whether an estimator was trained on a table or on texts."""
    return takes_text(estimator) or estimator.model_.columns is not None


def batches(
    source: Source, estimator: LTLSClassifier, labelled: bool, size: int = BATCH_SIZE
) -> Iterator[tuple[Any, list[list[Any]]]]:
    """Yield the input of an estimator in batches, with the labels of the rows if there are any."""
    if source.sparse:
        if takes_text(estimator):
            raise ValueError(
                f"the model takes texts, {source.name} has features ({source.format.name}); "
                "for lines of plain text give --text"
            )
        yield from _sparse_batches(source, estimator, size)
        return
    columns = source.columns(estimator.model_.columns)
    _check_columns_known(source, columns, takes_text(estimator), labelled)
    try:
        for rows in table_batches(source, columns, labelled, size):
            if columns.features and len(rows.features[0]) != estimator.n_features_in_:
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
    if not (columns.text if texts else columns.features):
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
