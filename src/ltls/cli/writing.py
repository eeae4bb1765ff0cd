"""Where answers go: checked before the work, named when it fails, whole or not at all."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ..core.streams import writing

_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})


def escaped(label: Any) -> str:
    """Return a label as one word of a line that has tabs between its words."""
    return str(label).translate(_ESCAPES)


def check_output(path: Path | None, *inputs: Path) -> None:
    """Refuse what could not be written before the work, not after it."""
    if path is None or str(path) == "-":
        return
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: not a file that can be replaced; name another, or a new one")
    if path.exists() and any(other.exists() and path.samefile(other) for other in inputs):
        raise ValueError(f"{path}: cannot be read and replaced at once")
    if not path.parent.is_dir():
        what = f"{os.strerror(errno.ENOENT)}; make the folder {path.parent} first"
        raise FileNotFoundError(errno.ENOENT, what, str(path))
    with naming(path), tempfile.TemporaryFile(dir=path.parent):
        pass


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let errors of writing name the file, which a full disk's does not, and say what to do."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        full = error.errno == errno.ENOSPC or "os error 28" in str(error.strerror)
        if full or "os error 27" in str(error.strerror) or error.errno == errno.EFBIG:
            raise type(error)(
                error.errno, f"{_reason(error)}; free some space, or write elsewhere", str(path)
            ) from error
        raise


def _reason(error: OSError) -> str:
    """Return the system's words for what happened, also where Rust wrapped them."""
    if error.errno in (errno.ENOSPC, errno.EFBIG):
        return os.strerror(error.errno)
    return os.strerror(28 if "os error 28" in str(error.strerror) else 27)


@contextmanager
def lines_to(path: Path | None) -> Iterator[IO[Any]]:
    """Open standard output, or a file that appears whole or not at all."""
    if path is None or str(path) == "-":
        with writing(None) as stream:
            yield stream
        return
    with naming(path), writing(path) as stream:
        yield stream
