"""NumPy's ``.npy`` files: a vector for every row, memory-mapped, with labels in a file of lines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.streams import is_pipe, open_input
from .errors import FormatError, PathLike, RowError
from .formats import Format, Kind
from .tables import labels_of

if TYPE_CHECKING:
    from ..core.arrays import AnyArray


class Npy(Format):
    """A two-dimensional array of numbers, as ``numpy.save`` writes it."""

    name = "npy"
    kind: Kind = "dense"
    suffixes = (".npy",)
    starts = b"\x93NUMPY"

    def open(self, path: PathLike) -> AnyArray:
        """Return the vectors of a file without reading them into memory."""
        import numpy as np

        if is_pipe(path):
            raise FormatError("npy files are memory-mapped: give a file, not a pipe", path=path)
        try:
            vectors: Any = np.load(os.fspath(path), mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError, OverflowError, SyntaxError) as error:
            raise FormatError(
                f"it cannot be memory-mapped as an npy file: {error}", path=path
            ) from None
        if vectors.ndim != 2 or vectors.dtype.kind not in "fiu":
            raise FormatError(
                "it must hold numbers of shape (n_rows, n_features), got "
                f"{vectors.dtype} of shape {vectors.shape}",
                path=path,
            )
        if not len(vectors):
            raise FormatError("the file has no rows", path=path)
        found: AnyArray = vectors
        return found


def read_labels(
    path: PathLike, n_rows: int, separator: str | None = None, encoding: str | None = None
) -> list[list[str]]:
    """Return the labels in a file that has a line for each of some rows.

    A line is a label; with a separator it holds several, or none.
    """
    with open_input(path) as stream:
        content = stream.read()
    try:
        text = content.decode(encoding or "utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"not {encoding or 'UTF-8'} text: {error.reason}", path=path) from None
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    if len(lines) != n_rows:
        raise FormatError(
            f"it must have a line for each of the {n_rows} rows, got {len(lines)}", path=path
        )
    found = [labels_of(line.strip(), separator) for line in lines]
    if separator is None and not all(found):
        number = next(n for n, own in enumerate(found, 1) if not own)
        raise RowError("missing", "its label is empty", path=Path(path), line=number)
    return found
