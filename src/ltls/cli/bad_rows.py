"""What --skip-bad-rows leaves of a file of sparse rows: the lines that can be read."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO

from ..core.streams import called, reading

_LINES_AT_A_TIME = 4096
_LINE = re.compile(r"^.*?, line (\d+): ")
_HEADER = re.compile(rb"\s*(\d+)\s+(\d+)\s+(\d+)\s*(#.*)?")


class GoodLines:
    """Copies the good lines of an svmlight or xmc file; counts the others, and keeps the first.

    `check` reads a file, and raises a ValueError that names the first line that is bad.
    """

    def __init__(self, path: Path, xmc: bool, check: Callable[[Path], object]) -> None:
        self.path, self.xmc, self._check = path, xmc, check
        self.bad_rows, self.first_bad = 0, ""
        self._counts = b""

    def copy(self, to: IO[bytes]) -> None:
        """Write the good lines, under a header that counts them if it is an xmc file."""
        kept = [line for part in self._parts() for line in part]
        to.write(self._header(kept) + b"".join(kept))
        to.flush()

    def _parts(self) -> Iterator[list[bytes]]:
        with reading(self.path) as stream:
            before = 0
            while self.xmc and not self._counts:
                line = stream.readline()
                before += 1
                if found := _HEADER.fullmatch(line):
                    self._counts = b"%s %s" % (found[2], found[3])
            while lines := list(islice(stream, _LINES_AT_A_TIME)):
                if not lines[-1].endswith(b"\n"):
                    lines[-1] += b"\n"
                yield from self._good_of(lines, before)
                before += len(lines)

    def _good_of(self, lines: list[bytes], before: int) -> Iterator[list[bytes]]:
        """Yield the good lines of some, which `before` others stand before."""
        while lines:
            fault = self._first_fault(lines)
            if fault is None:
                yield lines
                return
            at, message = fault
            yield lines[:at]
            self.bad_rows += 1
            place = f"{called(self.path)}, line {before + at + 1}: {message}"
            self.first_bad = self.first_bad or place
            lines, before = lines[at + 1 :], before + at + 1

    def _first_fault(self, lines: list[bytes]) -> tuple[int, str] | None:
        header = self._header(lines)
        with tempfile.NamedTemporaryFile(suffix=".rows") as part:
            part.write(header + b"".join(lines))
            part.flush()
            try:
                self._check(Path(part.name))
            except ValueError as error:
                if found := _LINE.match(str(error)):
                    return int(found[1]) - 1 - bool(header), str(error)[found.end() :]
        return None

    def _header(self, lines: list[bytes]) -> bytes:
        return b"%d %s\n" % (len(lines), self._counts) if self.xmc else b""
