"""NumPy's ``.npy`` files: one vector per row, memory-mapped, with labels in a text file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..core.streams import is_pipe, open_input
from .errors import FormatError, PathLike, RowError
from .formats import Format, InputKind
from .tables import labels_of

if TYPE_CHECKING:
    from ..core.arrays import AnyArray

_MAX_REASON = 200  # characters
_VALUES_AT_A_TIME = 1 << 22


class Npy(Format):
    """A two-dimensional array of numbers, as ``numpy.save`` writes it."""

    name = "npy"
    kind: InputKind = "dense"
    suffixes = (".npy",)
    starts = b"\x93NUMPY"

    def open(self, path: PathLike) -> AnyArray:
        """Return the vectors of a file without reading them into memory."""
        import numpy as np

        if is_pipe(path):
            raise FormatError("npy files are memory-mapped: give a file, not a pipe", path=path)
        with open(path, "rb") as file:
            start = file.read(len(self.starts))
        if start != self.starts:  # NumPy would advise to unpickle it
            raise FormatError(
                "it is not an npy file as numpy.save writes it; decompress it first if it is "
                "compressed",
                path=path,
            )
        try:
            with np.errstate(over="ignore"):  # of sizes, which are checked afterwards
                vectors: Any = np.load(os.fspath(path), mmap_mode="r", allow_pickle=False)
        except Exception as error:  # parsing the header, a Python literal, raises many types
            reason = str(error).partition(". ")[0][:_MAX_REASON] or type(error).__name__
            raise FormatError(
                f"it cannot be memory-mapped as an npy file: {reason}", path=path
            ) from None
        if vectors.ndim != 2 or vectors.dtype.kind not in "fiu" or not vectors.shape[1]:
            raise FormatError(
                "it must be a numeric array of shape (n_rows, n_features), got "
                f"{vectors.dtype} of shape {vectors.shape}",
                path=path,
            )
        if not len(vectors):
            raise FormatError("the file has no rows", path=path)
        found: AnyArray = vectors
        return found


def bad_rows(vectors: AnyArray, path: PathLike) -> Iterator[RowError]:
    """Yield an error for every row with a number that is not finite or too large."""
    import numpy as np

    from ..features.rows import LARGEST_VALUE

    size = max(_VALUES_AT_A_TIME // vectors.shape[1], 1)
    for first in range(0, len(vectors), size):
        block = np.asarray(vectors[first : first + size])
        if max(float(block.max()), -float(block.min())) <= LARGEST_VALUE:
            continue
        with np.errstate(over="ignore"):
            good = np.abs(block.astype(np.float64)) <= LARGEST_VALUE
        for number in np.flatnonzero(~good.all(axis=1)):
            column = int(np.argmin(good[number]))
            reason = (
                f"column {column + 1} is {block[number, column]:g}; numbers must be finite and at "
                f"most {LARGEST_VALUE:g}"
            )
            row = first + int(number) + 1
            error = RowError("value", reason, path=path, row=row)
            error.n_before = row - 1
            yield error


def read_labels(
    path: PathLike, n_rows: int, separator: str | None = None, encoding: str | None = None
) -> list[list[str]]:
    """Return the labels in a file with one line per row.

    A line is one label; with a separator, any number of labels.
    """
    with open_input(path) as stream:
        content = stream.read()
    if content.startswith(Npy.starts):
        raise FormatError(
            "labels are text with one line per row: numpy.savetxt(path, y, fmt='%s') writes them",
            path=path,
        )
    try:
        text = content.decode(encoding or "utf-8-sig")
    except UnicodeError as error:
        why = getattr(error, "reason", error)
        raise FormatError(f"not {encoding or 'UTF-8'} text: {why}", path=path) from None
    n_lines = text.count("\n") + (not text.endswith("\n") and text != "")
    if n_lines != n_rows:
        raise FormatError(
            f"it must have one line for each of the {n_rows} rows, got {n_lines}", path=path
        )
    lines = text.split("\n")[:n_rows]
    found = [labels_of(line.strip(), separator) for line in lines]
    if separator is None and not all(found):
        number = next(n for n, own in enumerate(found, 1) if not own)
        raise FormatError(
            f"line {number}: the label is empty; with a separator, rows may have no label",
            path=path,
        )
    return found
