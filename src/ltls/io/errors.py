"""Errors of readers and writers: what is wrong, and in which file, line or row.

Callers depend on the class and the attributes of an error, never on its text. No class calls the
constructor of `ValueError`, so that `args` stay the positional arguments, which pickle needs to
recreate an error in another process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ..core.streams import display_name

PathLike: TypeAlias = str | os.PathLike[str]
# Called with every row that cannot be read, which is then skipped.
OnBadRow: TypeAlias = "Callable[[RowError], None]"

_MAX_LISTED = 20  # columns in a message


class DataError(ValueError):
    """A data file cannot be read or written.

    Attributes
    ----------
    path : str or path-like, or None
        The file.
    reason : str
        What is wrong.
    """

    def __init__(self, reason: str, *, path: PathLike | None = None) -> None:
        self.reason, self.path = reason, path

    def __str__(self) -> str:
        place = [] if self.path is None else [display_name(self.path)]
        numbers = [(name, getattr(self, name, None)) for name in ("line", "row")]
        place += [f"{name} {number}" for name, number in numbers if number is not None]
        return f"{', '.join(place)}: {self.reason}" if place else self.reason


class FormatError(DataError):
    """A file as a whole violates its format, or its format is unknown."""


class EmptyFileError(FormatError):
    """A file has no rows."""

    def __init__(self, *, path: PathLike | None = None) -> None:
        super().__init__("the file has no rows", path=path)


class TooManyFeaturesError(FormatError):
    """A file declares more features than `n_features`.

    Attributes
    ----------
    n_features : int
        Number of features in the file.
    """

    def __init__(self, n_features: int, given: int, *, path: PathLike | None = None) -> None:
        reason = f"n_features must be at least {n_features}, as in the file, got {given}"
        super().__init__(reason, path=path)
        self.n_features = n_features


class ColumnError(FormatError):
    """A table lacks a column.

    Attributes
    ----------
    column : str
        The column that is missing.
    columns : list of str
        The columns of the table.
    """

    def __init__(
        self, column: str, columns: Sequence[str], hint: str = "", *, path: PathLike | None = None
    ) -> None:
        super().__init__(f"there is no column {column!r}, only {listed(columns)}{hint}", path=path)
        self.column, self.columns = column, list(columns)


class RowError(DataError):
    """A single row cannot be read.

    Attributes
    ----------
    line : int or None
        The line of the row in a text file, from 1.
    row : int or None
        The number of the row in a binary file, from 1.
    n_before : int or None
        Number of rows before it, good or bad; None if the row was not skipped.
    kind : str
        What is wrong: ``"label"``, ``"feature"`` (an index), ``"value"``, ``"pair"``,
        ``"duplicate"``, ``"fields"``, ``"syntax"``, ``"encoding"``, ``"missing"`` or ``"type"``.

    Examples
    --------
    >>> from ltls.io.errors import RowError
    >>> error = RowError("label", "label 'x' is not an integer", path="rows.txt", line=3)
    >>> print(error)
    rows.txt, line 3: label 'x' is not an integer
    """

    def __init__(
        self,
        kind: str,
        reason: str,
        *,
        path: PathLike | None = None,
        line: int | None = None,
        row: int | None = None,
    ) -> None:
        super().__init__(reason, path=path)
        self.kind, self.line, self.row = kind, line, row
        self.n_before: int | None = None


def listed(names: Sequence[str]) -> str:
    """Return column names for a message, at most 20."""
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(map(repr, names[:_MAX_LISTED])) + more
