"""Plain text: one text per line, without labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Any

from .errors import FormatError
from .formats import Sample, register
from .tables import Columns, LabelledText, LineFormat


class PlainText(LineFormat):
    """One text per line. It is never detected: any file could be one."""

    name = "text"
    kind = "text"
    has_labels = False

    def detect(self, sample: Sample) -> bool:
        """Return False: only used with --format text."""
        return False

    def parse(self, line: str, columns: Columns, labelled: bool) -> dict[str, Any]:
        """Return a line."""
        return {columns.text or "text": line.rstrip("\r\n")}

    def write(self, stream: IO[bytes], rows: Iterable[LabelledText], columns: Columns) -> None:
        """Raise an error: the labels would be lost."""
        raise FormatError("plain text has no labels; use csv or jsonl")


register(PlainText())
