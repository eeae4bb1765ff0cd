"""Training rows from data files, in memory or streamed, and what a model records about them."""

from __future__ import annotations

from typing import Any

from rich.filesize import decimal

from ..core.arrays import available_memory
from ..core.streams import is_compressed
from ..io.errors import EmptyFileError
from ..io.readers import Dataset, Stream, read
from ..io.table_stream import TableStream, targets_of
from ..io.tables import Rows
from .output import inform, note, warn
from .source import Source

# Bytes of memory per byte of a file; texts have many n-grams.
_MEMORY_PER_BYTE = {"sparse": 2.0, "numbers": 8.0, "text": 50.0}
_COMPRESSION_RATIO = 6  # of a text file of rows, about


def training_rows(
    source: Source, stream: bool | None, n_jobs: int | None
) -> tuple[Any, Any, dict[str, Any]]:
    """Return X and y, and what the model records about them.

    With --stream, or if the rows do not fit into memory, X is a stream and y is None.
    """
    if source.dense:  # memory-mapped: there is nothing to stream
        X, labels = source.vectors(labelled=True)
        return X, targets_of(Rows(labels=labels)), {}
    streamed = _is_streamed(source) if stream is None else stream
    if not source.sparse:
        facts = {"columns": recorded_columns(source)}
        if streamed:
            return _table_stream(source), None, facts
        rows = Rows.concatenate(source.table_batches(source.columns(), labelled=True))
        if not rows.labels:
            raise EmptyFileError(path=source.path)
        empty = sum(isinstance(each, str) and not each.strip() for each in rows.inputs)
        if empty:
            warn(f"{empty:,} of {len(rows):,} rows of {source.name} have no text")
        unlabelled = sum(not each for each in rows.labels)
        if unlabelled:
            warn(
                f"{unlabelled:,} of {len(rows):,} rows of {source.name} have no label; they are "
                "trained on as rows to which no label applies"
            )
        return rows.X, targets_of(rows), facts
    if not streamed:
        data = read_sparse(source)
        return data.X, data.targets, {"zero_based": data.zero_based}
    chunks = Stream(
        source.paths,
        source.format.name,
        zero_based=source.base,
        n_jobs=n_jobs,
        on_bad_row=source.on_bad_row,
    )
    return chunks, None, {"zero_based": chunks.zero_based}


def _is_streamed(source: Source) -> bool:
    """Decide by file sizes and free memory, and report the decision."""
    kind = "sparse" if source.sparse else "numbers" if source.columns().features else "text"
    n_bytes = sum(
        path.stat().st_size * (_COMPRESSION_RATIO if is_compressed(path) else 1)
        for path in source.paths
        if path.is_file()
    )
    needed, available = int(_MEMORY_PER_BYTE[kind] * n_bytes), available_memory()
    fits = available is None or needed <= available
    free = "unknown" if available is None else decimal(available)
    facts = f"its rows need about {decimal(needed)} of memory, {free} is free"
    if fits:
        note(f"{source.name} is read into memory: {facts}")
    else:
        inform(f"{source.name} is streamed: {facts}; --no-stream reads it into memory")
    return not fits


def read_sparse(source: Source) -> Dataset:
    """Read all sparse rows of files."""
    options: dict[str, Any] = {"zero_based": source.base, "on_bad_row": source.on_bad_row}
    return read(source.paths, source.format.name, **options)


def _table_stream(source: Source) -> TableStream:
    columns = source.columns()
    table = columns.mixed
    return TableStream(
        source.paths,
        columns.text if table is None else table.text,
        columns.label,
        columns.features,
        number=() if table is None else table.number,
        category=() if table is None else table.category,
        vectors=() if table is None else table.vectors,
        separator=columns.separator,
        format=source.format.name,
        on_bad_row=source.on_bad_row,
        encoding=source.encoding,
    )


def recorded_columns(source: Source) -> dict[str, Any] | None:
    """Return columns as a model file stores them; None if the format has no column names."""
    if source.format.kind == "text":
        return None
    columns = source.columns()
    names = {"text": columns.text, "label": columns.label, "separator": columns.separator}
    return {**names, "features": list(columns.features)}
