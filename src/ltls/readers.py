"""Readers and writers of data files: sparse rows, and streams of tables and texts."""

from .core.streams import FileTooLargeError, SizeLimits
from .io.errors import ColumnError, DataError, FormatError, RowError
from .io.readers import Dataset, Stream, read, write
from .io.table_stream import TableStream

__all__ = [
    "ColumnError",
    "DataError",
    "Dataset",
    "FileTooLargeError",
    "FormatError",
    "RowError",
    "SizeLimits",
    "Stream",
    "TableStream",
    "read",
    "write",
]
