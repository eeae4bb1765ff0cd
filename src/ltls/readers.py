"""Readers and writers of files of sparse rows: svmlight, xmc and other registered formats."""

from .io.errors import ColumnError, DataError, FormatError, RowError
from .io.readers import Dataset, Stream, read, write

__all__ = [
    "ColumnError",
    "DataError",
    "Dataset",
    "FormatError",
    "RowError",
    "Stream",
    "read",
    "write",
]
