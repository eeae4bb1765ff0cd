"""Tables and texts that may be larger than memory, for `fit_stream`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..core.arrays import as_integer, pointers
from ..core.streams import DEFAULT_LIMITS, SizeLimits
from ..features.columns import split_columns
from ..model.labels import Targets
from . import formats
from .errors import EmptyFileError, OnBadRow
from .files import DataFile, Paths, expand
from .tables import Columns, Rows, Table, table_format

_MAX_ROWS = 1 << 16  # of a batch


class TableStream:
    r"""Labelled tables or texts that may be larger than memory, read once per pass.

    Iterating yields batches ``(X, y)``: texts, an array of numbers, or a list of dicts for columns
    of several kinds; and their labels. Only one batch of about `chunk_size` is in memory, and for
    Parquet files the columns of one row group.

    Parameters
    ----------
    path : str or path-like, or a sequence of them
        One or several files of the same format, plain or compressed; a name with ``*``, ``?`` or
        ``[`` stands for all matching files. A pipe is first copied to a temporary file.
    text : str or sequence of str, optional
        The text column, or several for a `TableClassifier`. Not needed for fastText files, which
        have no column names.
    label : str, optional
        The label column.
    features : sequence of str
        The numeric columns, instead of a text column.
    number, category, vectors : sequence of str
        Columns of numbers, categories and vectors, which may have missing values, for a
        `TableClassifier`.
    separator : str, optional
        The separator between several labels in a cell. By default, a cell is one label; a list in
        JSON or Parquet is several.
    format : {"csv", "tsv", "jsonl", "parquet", "fasttext"} or another registered format, optional
        By default, it is detected from the content of the first file.
    chunk_size : int, default=2**22
        Approximate number of characters or numbers in a batch. The features computed from a batch
        take about 20 times as much memory as the batch.
    on_bad_row : callable, optional
        Called once with the `RowError` of every row that cannot be read, which is then skipped. By
        default, the error is raised.
    encoding : str, optional
        Encoding of text files; UTF-8 by default.
    limits : SizeLimits, optional
        How much a compressed file or a Parquet file may hold.

    Attributes
    ----------
    n_rows : int or None
        The number of rows; None until all have been read.
    columns : Columns
        The columns that are read.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from ltls import TextClassifier
    >>> from ltls.readers import TableStream
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for number in range(3):
    ...         path = pathlib.Path(folder, f"part{number}.csv")
    ...         _ = path.write_text("text,kind\nmy card is lost,card\nwhat fee is this,fee\n" * 9)
    ...     rows = TableStream(f"{folder}/part*.csv", text="text", label="kind")
    ...     model = TextClassifier(random_state=0).fit_stream(rows)
    >>> model.predict(["lost cards", "a fee"]).tolist()
    ['card', 'fee']
    """

    def __init__(
        self,
        path: Paths,
        text: str | Sequence[str] | None = None,
        label: str | None = None,
        features: Sequence[str] = (),
        *,
        number: str | Sequence[str] = (),
        category: str | Sequence[str] = (),
        vectors: str | Sequence[str] = (),
        separator: str | None = None,
        format: str | None = None,  # noqa: A002
        chunk_size: int = 1 << 22,
        on_bad_row: OnBadRow | None = None,
        encoding: str | None = None,
        limits: SizeLimits = DEFAULT_LIMITS,
    ) -> None:
        paths = expand(path)
        self.chunk_size = as_integer("chunk_size", chunk_size, at_least=1)
        self.n_rows: int | None = None
        if format is None:
            with DataFile(paths[0], limits, encoding=encoding).open() as file:
                sample = formats.Sample(paths[0], file.start, bool(text or label))
            format = formats.detect(sample).name  # noqa: A001
        self.format = table_format(format)
        text, mixed = split_columns(text, number, category, vectors)
        if self.format.kind == "text":  # without column names
            text, label, features, mixed = text or "text", label or "label", (), None
        if not label or not (text or features or mixed) or not self.format.has_labels:
            raise ValueError(
                f"a {self.format.name} stream needs a label column and a text column or features, "
                f"got text={text!r}, label={label!r}, features={list(features)!r}"
            )
        if features and (text or mixed):
            raise ValueError(
                "text and features must not both be given: use number or vectors for features"
            )
        self.columns = Columns(text, label, tuple(features), separator, mixed)
        self._paths = paths
        self._tables = [
            Table(each, format, self.columns, True, on_bad_row, limits, encoding, again=True)
            for each in paths
        ]

    def __iter__(self) -> Iterator[tuple[Any, Targets]]:
        n_rows = 0
        for table in self._tables:
            for rows in table.batches(_MAX_ROWS, self.chunk_size):
                n_rows += len(rows)
                yield rows.X, targets_of(rows)
        if not n_rows:
            raise EmptyFileError(path=self._paths[0])
        self.n_rows = n_rows


def targets_of(rows: Rows) -> Targets:
    """Return the labels of rows; they are multi-label unless every row has exactly one label."""
    counts = [len(labels) for labels in rows.labels]
    single = all(count == 1 for count in counts)
    labels = [label for row in rows.labels for label in row]
    return Targets(pointers(np.array(counts)), labels, not single, "single" if single else "lists")
