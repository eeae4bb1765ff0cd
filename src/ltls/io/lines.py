"""Formats with one row per line: JSON lines, fastText, plain text."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import IO, Any

from .errors import FormatError, RowError
from .files import OpenFile, check_decoded
from .tables import Columns, LabelledText, OpenTable, RecordOrError, TableFormat

PREFIX = "__label__"


class LineFormat(TableFormat):
    """A format with one row per line."""

    @abstractmethod
    def parse(self, line: str, columns: Columns, labelled: bool) -> dict[str, Any] | None:
        """Return the row in a line, None if it has no row; raise a `RowError` if it is bad."""

    def open(self, file: OpenFile, columns: Columns, labelled: bool) -> OpenTable:
        """Begin to read a file."""
        return None, self._records(file.lines(), columns, labelled)

    def _records(
        self, lines: Iterator[str], columns: Columns, labelled: bool
    ) -> Iterator[tuple[int, RecordOrError]]:
        for number, line in enumerate(lines, 1):
            try:
                check_decoded(line)
                record = self.parse(line, columns, labelled)
            except RowError as error:  # noqa: PERF203
                yield number, error
            else:
                if record is not None:
                    yield number, record


class JsonLines(LineFormat):
    """One JSON object per line; its keys are the columns."""

    name = "jsonl"
    suffixes = (".jsonl", ".ndjson")
    starts = b"{"

    def open(self, file: OpenFile, columns: Columns, labelled: bool) -> OpenTable:
        """Read up to the first object, whose keys are the names of the columns."""
        _, records = super().open(file, columns, labelled)
        before = []
        for number, record in records:
            before.append((number, record))
            if isinstance(record, dict):
                return list(record), chain(before, records)
        return None, iter(before)

    def parse(self, line: str, columns: Columns, labelled: bool) -> dict[str, Any] | None:
        """Return the object of a line."""
        if not line.strip():
            return None
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise RowError(
                "syntax", f"not JSON: {error.msg} at character {error.pos + 1}"
            ) from None
        except (ValueError, RecursionError) as error:  # too many digits, or nested too deeply
            raise RowError("syntax", f"not JSON: {error}") from None
        if not isinstance(record, dict):
            raise RowError("type", f"a line must be a JSON object, got {str(record)[:40]}")
        return record

    def write(self, stream: IO[bytes], rows: Iterable[LabelledText], columns: Columns) -> None:
        """Write one object per row; several labels are a list."""
        for text, labels in rows:
            record: dict[str, object] = {columns.text or "text": text}
            if labels is not None:
                single = len(labels) == 1 and not columns.separator
                record[columns.label or "label"] = labels[0] if single else labels
            stream.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")


class FastText(LineFormat):
    """``__label__a __label__b the text`` lines."""

    name = "fasttext"
    kind = "text"
    suffixes = (".ft", ".fasttext")
    starts = PREFIX.encode()

    def parse(self, line: str, columns: Columns, labelled: bool) -> dict[str, Any] | None:
        """Return the labels and the other words of a line."""
        if not line.strip():
            return None
        words = line.rstrip("\r\n").split(" ")
        labels = [word[len(PREFIX) :] for word in words if word.startswith(PREFIX)]
        if labelled and not labels:  # fastText itself ignores such a line
            raise RowError("label", f"it has no {PREFIX}")
        text = " ".join(word for word in words if not word.startswith(PREFIX))
        return {columns.text or "text": text.strip(), columns.label or "label": labels}

    def write(self, stream: IO[bytes], rows: Iterable[LabelledText], columns: Columns) -> None:
        """Write one line per row; spaces within a label become underscores."""
        for text, labels in rows:
            words = [PREFIX + "_".join(label.split()) for label in labels or ()]
            stream.write(" ".join([*words, *text.split()]).encode() + b"\n")


class PlainText(LineFormat):
    """One text per line. This format is never detected, since every text file matches it."""

    name = "text"
    kind = "text"
    has_labels = False

    def parse(self, line: str, columns: Columns, labelled: bool) -> dict[str, Any]:
        """Return a line."""
        return {columns.text or "text": line.rstrip("\r\n")}

    def write(self, stream: IO[bytes], rows: Iterable[LabelledText], columns: Columns) -> None:
        """Raise an error: the labels would be lost."""
        raise FormatError("plain text has no labels; use csv or jsonl")
