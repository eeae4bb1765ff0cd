"""Output files: checked before the work, named in errors, replaced atomically."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from ..core.streams import is_special, open_output, open_text_output
from .printable import PrintableStream

_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})


def escaped(label: object) -> str:
    """Return a label as one field of a tab-separated line."""
    return str(label).translate(_ESCAPES)


def is_standard_output(path: Path) -> bool:
    """Return whether a path is standard output, a named pipe or a device: no summary fits there."""
    return str(path) in ("-", "/dev/stdout") or is_special(path)


def check_output(path: Path | None, *inputs: Path | None, special: bool = False) -> None:
    """Raise an error if a file could not be written, before the work is done.

    `special` permits a named pipe or a device such as /dev/stdout.
    """
    if path is None or str(path) in ("-", "/dev/stdout"):
        sys.stdout.write("")  # an error if it is closed
        return
    if special and is_special(path):
        return
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: not a regular file; choose another output file")
    if path.exists() and any(each and each.exists() and path.samefile(each) for each in inputs):
        raise ValueError(f"{path}: the input cannot also be the output")
    if not path.parent.is_dir():
        reason = f"{os.strerror(errno.ENOENT)}; create the folder {path.parent} first"
        raise FileNotFoundError(errno.ENOENT, reason, str(path))
    with errors_named(path), tempfile.TemporaryFile(dir=path.resolve().parent):
        pass


@contextmanager
def errors_named(path: Path | None) -> Iterator[None]:
    """Let errors of writing name the file, which that of a full disk does not."""
    try:
        yield
    except OSError as error:
        if path is not None and str(path) != "-":
            error.filename = str(path)
        raise


@contextmanager
def text_output(path: Path | None) -> Iterator[IO[str]]:
    """Open standard output (None or ``-``) or a file for text; a terminal gets no escapes."""
    with errors_named(path), open_text_output(path) as stream:
        yield cast(IO[str], PrintableStream(stream))


@contextmanager
def binary_output(path: Path) -> Iterator[IO[bytes]]:
    """Open standard output (``-``) or a file for bytes."""
    with errors_named(path), open_output(path) as stream:
        yield stream
