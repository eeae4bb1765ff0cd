"""Apache Parquet, through pyarrow."""

from __future__ import annotations

import importlib
import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from .errors import FormatError, PathLike
from .formats import Sample, register
from .tables import Columns, LabelledText, Record, TableFormat, TableReader

_BATCH_SIZE = 1 << 12  # rows of a row group that become Python objects at a time


class Parquet(TableFormat):
    """A Parquet file; several labels are a list."""

    name = "parquet"
    suffixes = (".parquet",)

    def detect(self, sample: Sample) -> bool:
        """Return whether the file has the magic number of Parquet."""
        return sample.start.startswith(b"PAR1")

    def open(
        self, stream: io.BufferedReader, path: PathLike, columns: Columns, labelled: bool
    ) -> TableReader:
        """Read the schema."""
        parquet = _pyarrow("parquet")
        # The schema is at the end of the file: a stream that cannot seek is read as a whole.
        seekable = type(stream.raw) is io.FileIO and stream.seekable()
        source = stream if seekable else io.BytesIO(stream.read())
        with _damage_reported(path):
            file = parquet.ParquetFile(source)
            names = list(file.schema_arrow.names)
        wanted = [name for name in columns.names if name in names]
        return TableReader(names, _records(file, wanted, path), numbered_by="row")

    def write(self, stream: IO[bytes], rows: Iterable[LabelledText], columns: Columns) -> None:
        """Write two columns; labels are lists unless every row has exactly one."""
        parquet, arrow = _pyarrow("parquet"), _pyarrow("lib")
        pairs = list(rows)
        table: dict[str, Any] = {columns.text or "text": [text for text, _ in pairs]}
        if columns.label:
            labels = [row or [] for _, row in pairs]
            single = all(len(row) == 1 for row in labels)
            table[columns.label] = [row[0] for row in labels] if single else labels
        parquet.write_table(arrow.table(table), stream)


def _records(file: Any, wanted: list[str], path: PathLike) -> Iterator[tuple[int, Record]]:
    number = 0
    # Row groups are decoded one after the other: only one of them is in memory. Threads of pyarrow
    # that run out of memory while a damaged file is read crash the process.
    batches = file.iter_batches(batch_size=_BATCH_SIZE, columns=wanted, use_threads=False)
    while True:
        with _damage_reported(path):
            batch = next(batches, None)
            if batch is None:
                return
            records = batch.to_pylist()
        for record in records:
            number += 1
            yield number, record


@contextmanager
def _damage_reported(path: PathLike) -> Iterator[None]:
    """Turn the errors of pyarrow, and of the values that it reads, into a `FormatError`."""
    try:
        yield
    except (_pyarrow("lib").ArrowException, ValueError, OSError, OverflowError) as error:
        raise FormatError(f"not a Parquet file: {error}", path=path) from None


def _pyarrow(module: str) -> Any:
    """Import a part of pyarrow, which only Parquet needs."""
    try:
        return importlib.import_module(f"pyarrow.{module}")
    except ImportError:
        raise FormatError("Parquet files need pyarrow: pip install 'ltls[parquet]'") from None


register(Parquet())
