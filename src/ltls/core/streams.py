"""What commands read and write: files, pipes, standard input and standard output."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from .atomic import replacing
from .compression import damage_named, is_packed_name, opened, opened_to_write, unpacked

_PEEK = 1 << 16


def called(path: str | os.PathLike[str]) -> str:
    """Return what messages call a file; ``-`` is standard input."""
    return "standard input" if os.fspath(path) == "-" else os.fspath(path)


def without_compression(path: str | os.PathLike[str]) -> str:
    """Return a file's name without the suffix of its compression."""
    name = os.fspath(path)
    return os.path.splitext(name)[0] if is_packed_name(name) else name


def is_pipe(path: str | os.PathLike[str]) -> bool:
    """Tell whether something can be read only once: standard input, or <(a command) of a shell."""
    name = os.fspath(path)
    return name == "-" or (
        os.path.exists(name) and not os.path.isfile(name) and not os.path.isdir(name)
    )


@contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[io.BufferedReader]:
    """Open a file for reading, unpacked; ``-`` is standard input. Damage is a ValueError.

    What can be read only once goes on where it was left when it is opened again.
    """
    if is_pipe(path):
        with damage_named(called(path)):
            yield _opened_once(os.fspath(path))
    else:
        with opened(os.fspath(path)) as stream:
            yield _buffered(stream)


_pipes: dict[str, tuple[Any, io.BufferedReader]] = {}  # what is read only once, while we run


def _opened_once(name: str) -> io.BufferedReader:
    source = sys.stdin if name == "-" else None
    if name not in _pipes or _pipes[name][0] is not source:
        raw = sys.stdin.buffer if name == "-" else open(name, "rb")  # noqa: SIM115
        _pipes[name] = source, _buffered(unpacked(_buffered(raw)))
    return _pipes[name][1]


def _buffered(stream: Any) -> io.BufferedReader:
    return stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream, _PEEK)


def first_line(stream: io.BufferedReader) -> bytes:
    """Return the first line that is not blank, as far as it can be seen without reading on."""
    seen = stream.peek(_PEEK)
    return seen.lstrip().split(b"\n", 1)[0]


@contextmanager
def writing(path: str | os.PathLike[str] | None) -> Iterator[IO[str]]:
    """Open a text stream for writing: standard output for None or ``-``, else a file.

    The file appears whole or not at all, compressed where its name says so.
    """
    if path is None or os.fspath(path) == "-":
        yield sys.stdout
        return
    with (
        replacing(path) as temporary,
        opened_to_write(temporary, os.fspath(path)) as packed,
        io.TextIOWrapper(packed, encoding="utf-8", newline="") as stream,
    ):
        yield stream
