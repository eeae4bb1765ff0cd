"""The columns of a table that are the input of a classifier, and the values of their cells.

It imports nothing slow, so that the names of columns can be checked at once.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from ..core.shortened import shortened

if TYPE_CHECKING:
    from ..core.arrays import AnyArray

Record: TypeAlias = "dict[str, Any]"

KINDS = ("text", "number", "category", "vectors")
_MISSING_NUMBERS = frozenset({"", "nan", "na", "n/a", "null", "none"})
_MAX_NUMBER = 1e100  # the variance of such numbers is finite
_MAX_IN_VECTOR = 3.4028234663852886e38  # of float32
_BETWEEN = "\n"  # texts of a row
_INTEGER = re.compile(r"-?\d+\.0+")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:\.\d+)?)")
_MIDNIGHT = re.compile(r"00:00:00(\.0+)?")
_MAX_LISTED = 10  # columns in a message


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table that are the input of a classifier, by kind."""

    text: tuple[str, ...] = ()
    number: tuple[str, ...] = ()
    category: tuple[str, ...] = ()
    vectors: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = self.names
        if not names:
            raise ValueError(
                "a table needs at least one column: name it with text, number, category or vectors"
            )
        for name in names:
            if not isinstance(name, str) or not name:
                raise ValueError(f"columns must be names, got {name!r}")
            if names.count(name) > 1:
                raise ValueError(f"column {name!r} must be given once, got it twice")

    @property
    def names(self) -> list[str]:
        """All columns."""
        return [*self.text, *self.number, *self.category, *self.vectors]

    def by_kind(self) -> dict[str, tuple[str, ...]]:
        """Return the columns by kind; vectors only if there are any."""
        kinds = KINDS if self.vectors else KINDS[:-1]
        return {kind: getattr(self, kind) for kind in kinds}

    def read(self, record: Mapping[str, Any]) -> Record:
        """Return the cells of a row: texts, numbers, the texts of categories, and vectors.

        A missing text is empty, a missing number NaN, a missing category or vector None.
        """
        for name in self.names:
            if name not in record:
                has = ", ".join(map(repr, list(record)[:_MAX_LISTED])) or "nothing"
                raise ValueError(f"it has no {name!r}, only {has}")
        cells: Record = {name: _text(name, record[name]) for name in self.text}
        cells |= {name: _number(name, record[name]) for name in self.number}
        cells |= {name: _category(name, record[name]) for name in self.category}
        return cells | {name: _vector(name, record[name]) for name in self.vectors}

    def joined_text(self, cells: Record) -> str:
        """Return the texts of a row joined to one, from which n-grams are taken."""
        return _BETWEEN.join(cells[name] for name in self.text)


def split_columns(
    text: str | Sequence[str] | None,
    number: str | Sequence[str],
    category: str | Sequence[str],
    vectors: str | Sequence[str] = (),
) -> tuple[str | None, TableColumns | None]:
    """Return the text column if a table has no other columns, else its columns by kind."""
    texts, *others = (
        (given,) if isinstance(given, str) else tuple(given or ())
        for given in (text, number, category, vectors)
    )
    if any(others) or len(texts) > 1:
        return None, TableColumns(texts, *others)
    return (texts[0] if texts else None), None


def _is_missing(cell: Any) -> bool:
    try:
        return cell is None or bool(cell != cell)  # NaN
    except (TypeError, ValueError):  # pandas.NA; arrays
        return not hasattr(cell, "__len__")


def _text(name: str, cell: Any) -> str:
    if _is_missing(cell):
        return ""
    if not isinstance(cell, str):
        raise ValueError(f"{name!r} is {shortened(cell)}, not a text")
    return cell


def _number(name: str, cell: Any) -> float:
    if _is_missing(cell) or (isinstance(cell, str) and cell.strip().lower() in _MISSING_NUMBERS):
        return math.nan
    try:
        number = float(cell)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) <= _MAX_NUMBER:
        finite = math.isfinite(number)
        wanted = f"not between ±{_MAX_NUMBER:g}" if finite else "not a finite number"
        raise ValueError(f"{name!r} is {shortened(cell)}, {wanted}")
    return number


def _category(name: str, cell: Any) -> str | None:
    """Return a category as text; a number and its text form are the same category."""
    if _is_missing(cell) or cell == "":
        return None
    if isinstance(cell, str):
        return _as_in_json(str(cell))
    scalar = hasattr(cell, "item") and not hasattr(cell, "__len__")  # of NumPy
    value = cell.item() if scalar else cell
    if isinstance(value, (date, time)):
        return _as_in_json(value.isoformat())
    if isinstance(value, float) and value.is_integer():  # integers with missing ones are floats
        return str(int(value))
    if isinstance(value, (bool, int, float, Decimal)):
        return json.dumps(value) if isinstance(value, bool) else str(value)
    raise ValueError(f"{name!r} is {shortened(cell)}, neither a text nor a number")


def _vector(name: str, cell: Any) -> AnyArray | None:
    import numpy as np  # only rows need it

    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return None
    try:
        numbers = np.atleast_1d(np.asarray(cell, np.float64))
    except (TypeError, ValueError, OverflowError):
        numbers = np.empty((0, 0))
    if numbers.ndim != 1 or not len(numbers):
        raise ValueError(f"{name!r} is {shortened(cell)}, not a list of numbers")
    if not (np.abs(numbers) <= _MAX_IN_VECTOR).all():
        bad = numbers[~(np.abs(numbers) <= _MAX_IN_VECTOR)][0]
        raise ValueError(f"{name!r} has {bad:g}, not a finite number")
    return numbers.astype(np.float32)


def _as_in_json(text: str) -> str:
    """Return a text from a CSV file in the form that JSON and Parquet have.

    CSV files have ".0" after integers if some are missing, "True" for true, and dates without their
    time, or with a blank before it.
    """
    if _INTEGER.fullmatch(text):
        return text.partition(".")[0]
    if text in ("True", "False", "TRUE", "FALSE"):
        return text.lower()
    if moment := _MOMENT.fullmatch(text):
        day, clock = moment.groups()
        return day if _MIDNIGHT.fullmatch(clock) else f"{day}T{clock}"
    return text
