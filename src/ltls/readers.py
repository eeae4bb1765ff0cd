"""Readers and writers of files of sparse rows: svmlight, xmc and other registered formats."""

from .core.size_limits import FileTooLargeError, SizeLimits
from .io.errors import ColumnError, DataError, FormatError, RowError
from .io.readers import Dataset, Stream, read, write

__all__ = [
    "ColumnError",
    "DataError",
    "Dataset",
    "FileTooLargeError",
    "FormatError",
    "RowError",
    "SizeLimits",
    "Stream",
    "read",
    "write",
]
