"""Rows of data files to train on: in memory or streamed, and what a model records of them."""

from __future__ import annotations

from typing import Any

from rich.filesize import decimal

from ..core import memory
from ..io.errors import EmptyFileError
from ..io.readers import Dataset, Stream, read
from ..io.table_stream import TableStream, targets_of
from ..io.tables import Rows
from .output import inform, note, warn
from .source import Source

# Memory for a byte of a file: the n-grams of texts are many.
_MEMORY_PER_BYTE = {"sparse": 2.0, "numbers": 8.0, "text": 50.0}


def training_rows(
    source: Source, stream: bool | None, n_jobs: int | None
) -> tuple[Any, Any, dict[str, Any]]:
    """Return X and y, and what to record of them in the model.

    With --stream, or if the rows are too many for the memory, X is a stream and y None.
    """
    if source.dense:  # memory-mapped: there is nothing to stream
        X, labels = source.vectors(labelled=True)
        return X, targets_of(Rows(labels=labels)), {}
    if not source.sparse:
        source.check_training_columns()
    streamed = _is_streamed(source) if stream is None else stream
    if not source.sparse:
        facts = {"columns": recorded_columns(source)}
        if streamed:
            return _table_stream(source), None, facts
        rows = Rows.concatenate(source.table_batches(source.columns(), labelled=True))
        if not rows.labels:
            raise EmptyFileError(path=source.path)
        if source.separator is None:
            _warn_of_joined_labels(rows.labels)
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


def _warn_of_joined_labels(labels: list[list[str]]) -> None:
    """Warn if most cells of labels seem to hold several: their pieces are fewer than the cells."""
    cells = [own[0] for own in labels if len(own) == 1]
    for separator in ";|,":
        several = [cell for cell in cells if separator in cell]
        if 2 * len(several) <= len(labels):
            continue
        pieces = {piece.strip() for cell in cells for piece in cell.split(separator)}
        if len(pieces) < (n_labels := len(set(cells))):
            warn(
                f"{len(several):,} of {len(labels):,} rows have {separator!r} in their label, as "
                f"{several[0]!r}, which is one class: there are {n_labels:,} of them. --separator "
                f"'{separator}' splits them into {len(pieces):,} classes, several per row"
            )
            return


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
    """Return columns as a model file holds them; None if the format has no names of columns."""
    if source.format.kind == "text":
        return None
    columns = source.columns()
    names = {"text": columns.text, "label": columns.label, "separator": columns.separator}
    return {**names, "features": list(columns.features)}
