"""Plain text: one text per line, without labels."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import IO

from .errors import FormatError, PathLike
from .formats import Sample, register
from .tables import Columns, LabelledText, Record, TableFormat, TableReader
from .text_lines import TextLines


class PlainText(TableFormat):
    """One text per line. It is never detected: any file could be one."""

    name = "text"
    kind = "text"
    has_labels = False

    def detect(self, sample: Sample) -> bool:
        """Return False: only used with --format text."""
        return False

    def open(
        self, stream: io.BufferedReader, path: PathLike, columns: Columns, labelled: bool
    ) -> TableReader:
        """Open the file for reading."""
        return TableReader(None, self._records(TextLines(stream), columns.text or "text"))

    def _records(self, lines: TextLines, text: str) -> Iterator[tuple[int, Record]]:
        for number, line in enumerate(lines, 1):
            yield number, lines.take_error() or {text: line.rstrip("\r\n")}

    def write(self, stream: IO[bytes], rows: Iterable[LabelledText], columns: Columns) -> None:
        """Raise an error: the labels would be lost."""
        raise FormatError("plain text has no labels; use csv or jsonl")


register(PlainText())
