"""The files of a data set: one or several, patterns of names, pipes that are read again."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from collections.abc import Iterable
from typing import Any, TypeAlias

from ..core.size_limits import DEFAULT_LIMITS, SizeLimits
from ..core.streams import open_input
from .errors import PathLike

Paths: TypeAlias = PathLike | Iterable[PathLike]


def expand(paths: Paths) -> list[PathLike]:
    """Return the files that are meant; those that match a pattern such as ``"*.csv"`` are sorted.

    Raises
    ------
    FileNotFoundError
        If no file matches a pattern.
    ValueError
        If there are no files at all.

    Examples
    --------
    >>> from ltls.io.files import expand
    >>> expand(["a.csv", "-"])
    ['a.csv', '-']
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not given:
        raise ValueError("paths must name at least one file, got none")
    files: list[PathLike] = []
    for path in given:
        name = os.fspath(path)
        if os.path.exists(name) or not glob.has_magic(name):
            files.append(path)
            continue
        found = sorted(each for each in glob.glob(name, recursive=True) if os.path.isfile(each))
        if not found:
            raise FileNotFoundError(f"{name}: no file matches this pattern")
        files += found
    return files


class ReadableAgain:
    """A file that can be read any number of times: the content of a pipe is copied to a file.

    Parameters
    ----------
    path : path-like
        A file, a pipe, or ``-`` for standard input.
    limits : SizeLimits
        How much a compressed file may hold.
    copy : bool, default=False
        Copy the decompressed content of a regular file as well.

    Attributes
    ----------
    path : path-like
        As given, for messages.
    file : path-like
        What to open.
    """

    def __init__(
        self, path: PathLike, limits: SizeLimits = DEFAULT_LIMITS, copy: bool = False
    ) -> None:
        self.path: PathLike = path
        self.file: PathLike = path
        if copy or os.fspath(path) == "-" or not os.path.isfile(path):
            self._copy = _copied(path, limits)
            self.file = self._copy.name


def _copied(path: PathLike, limits: SizeLimits) -> Any:
    """Return a temporary file with the decompressed content of another file."""
    copy = tempfile.NamedTemporaryFile(prefix="ltls-")  # noqa: SIM115
    with open_input(path, limits) as source:
        shutil.copyfileobj(source, copy)
    copy.flush()
    return copy
