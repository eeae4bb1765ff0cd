"""Apache Parquet, through pyarrow."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import IO, Any

from .errors import FormatError, PathLike
from .files import OpenFile, copied
from .tables import Columns, LabelledText, OpenTable, RecordOrError, TableFormat

_BATCH_SIZE = 1 << 12  # rows of a row group that become Python objects at a time
_SMALL_BATCH_SIZE = 16  # the same, if texts are decoded before their size is known
_VALUE_SIZE = 8  # minimum bytes of a row, and of a list item
_TEXTS = ("string", "large_string", "binary", "large_binary")  # types of Arrow


class Parquet(TableFormat):
    """A Parquet file; several labels are a list."""

    name = "parquet"
    suffixes = (".parquet",)
    starts = b"PAR1"
    numbered_by = "row"

    def open(self, file: OpenFile, columns: Columns, labelled: bool) -> OpenTable:
        """Read the schema."""
        # The schema is at the end of the file: a stream that cannot seek is copied.
        seekable = type(file.stream.raw) is io.FileIO and file.stream.seekable()
        source = file.stream if seekable else copied(file.stream)
        with _damage_reported(file.path):
            table = _pyarrow().parquet.ParquetFile(source)
            names = list(table.schema_arrow.names)
        wanted = [name for name in columns.names if name in names]
        vectors = [*columns.features, *(columns.mixed.vectors if columns.mixed else ())]
        return names, _records(file, source, table, wanted, vectors)

    def write(self, stream: IO[bytes], rows: Iterable[LabelledText], columns: Columns) -> None:
        """Write two columns; labels are lists unless every row has exactly one."""
        arrow = _pyarrow()
        pairs = list(rows)
        table: dict[str, Any] = {columns.text or "text": [text for text, _ in pairs]}
        if columns.label:
            labels = [row or [] for _, row in pairs]
            single = all(len(row) == 1 for row in labels)
            table[columns.label] = [row[0] for row in labels] if single else labels
        arrow.parquet.write_table(arrow.table(table), stream)


def _records(
    file: OpenFile, source: Any, table: Any, wanted: list[str], vectors: Sequence[str]
) -> Iterator[tuple[int, RecordOrError]]:
    """Yield the rows; sizes are checked before and after decoding."""
    arrow = _pyarrow()
    from .arrow import vector_cells  # it imports pyarrow

    n_stored = source.seek(0, io.SEEK_END)
    number = n_bytes = 0
    for batch in _batches(file, source, table, wanted, n_stored):
        with _damage_reported(file.path):
            n_bytes += _VALUE_SIZE * len(batch)
            n_bytes += sum(_decoded_size(arrow, column) for column in batch.columns)
        file.check_size(n_bytes, n_stored)
        with _damage_reported(file.path):
            names = batch.schema.names
            arrays = [_plain(arrow, column) for column in batch.columns]
            cells = [
                vector_cells(array) if name in vectors else array.to_pylist()
                for name, array in zip(names, arrays, strict=True)
            ]
        for row in zip(*cells, strict=True):
            number += 1
            yield number, dict(zip(names, row, strict=True))


def _batches(
    file: OpenFile, source: Any, table: Any, wanted: list[str], n_stored: int
) -> Iterator[Any]:
    """Yield record batches, with only one row group in memory at a time."""
    metadata = table.metadata
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    n_bytes = sum(_VALUE_SIZE * group.num_rows + group.total_byte_size for group in groups)
    file.check_size(n_bytes, n_stored)
    with _damage_reported(file.path):
        # Nothing is held in memory. Damaged columns raise an error here; below, they would crash
        # the process.
        table.scan_contents(wanted, _SMALL_BATCH_SIZE)
    texts: set[str] = set()
    differences: set[str] = set()
    for leaf in range(metadata.num_columns):
        column = metadata.schema.column(leaf)
        if set(wanted).isdisjoint(accumulate(column.path.split("."), "{}.{}".format)):
            continue
        chunks = [group.column(leaf) for group in groups]
        # A row may have any number of list items, and fixed-size lists may have any length.
        width = max(column.length, _VALUE_SIZE if column.max_repetition_level else 0)
        n_bytes += sum(chunk.num_values * width for chunk in chunks)
        if column.physical_type == "BYTE_ARRAY":
            encodings = {each for chunk in chunks for each in chunk.encodings}
            stored_as_differences = any(each.startswith("DELTA") for each in encodings)
            (differences if stored_as_differences else texts).add(column.path)
    file.check_size(n_bytes, n_stored)
    with _damage_reported(file.path):
        # Repeated texts are read once, into a dictionary: a copy for every row may be too large.
        # pyarrow cannot do so with delta-encoded texts. If its threads ran out of memory on a
        # damaged file, they would crash the process.
        table = _pyarrow().parquet.ParquetFile(
            source, metadata=metadata, read_dictionary=list(texts)
        )
        size = _SMALL_BATCH_SIZE if differences else _BATCH_SIZE
        for group in range(len(groups)):  # each has its own dictionaries
            yield from table.iter_batches(size, [group], wanted, use_threads=False)


def _decoded_size(arrow: Any, array: Any) -> int:
    """Return how many bytes an array takes if repeated texts are stored repeatedly.

    Numbers are not counted: a file may have thousands of columns that are almost all 0.
    """
    kind, types = array.type, arrow.types
    if types.is_nested(kind):
        inner = array.flatten()
        parts = inner if types.is_struct(kind) else [inner]
        return sum(_VALUE_SIZE * len(part) + _decoded_size(arrow, part) for part in parts)
    if types.is_dictionary(kind) and str(kind.value_type) in _TEXTS:
        lengths = arrow.compute.binary_length(array.dictionary)
        return int(arrow.compute.sum(lengths.take(array.indices)).as_py() or 0)
    return 0 if types.is_dictionary(kind) or types.is_primitive(kind) else int(array.nbytes)


def _plain(arrow: Any, array: Any) -> Any:
    return array.dictionary_decode() if arrow.types.is_dictionary(array.type) else array


@contextmanager
def _damage_reported(path: PathLike) -> Iterator[None]:
    """Turn the errors of pyarrow, and of the values that it reads, into a `FormatError`."""
    errors = (_pyarrow().ArrowException, ValueError, OSError, OverflowError)
    try:
        yield
    except errors as error:
        raise FormatError(f"not a Parquet file: {error}", path=path) from None


def _pyarrow() -> Any:
    """Import pyarrow, which only Parquet needs."""
    try:
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        raise FormatError("Parquet files need pyarrow: pip install 'ltls[parquet]'") from None
    return pyarrow
