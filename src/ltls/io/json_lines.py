"""JSON lines: one object per line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from typing import IO, Any

from .errors import RowError
from .files import OpenFile
from .formats import Sample, register
from .tables import Columns, LabelledText, LineFormat, OpenTable


class JsonLines(LineFormat):
    """One JSON object per line; its keys are the columns."""

    name = "jsonl"
    suffixes = (".jsonl", ".ndjson")

    def detect(self, sample: Sample) -> bool:
        """Return whether the first line begins an object."""
        return sample.first_line.startswith(b"{")

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
            raise RowError("type", f"a JSON object is needed, got {str(record)[:40]}")
        return record

    def write(self, stream: IO[bytes], rows: Iterable[LabelledText], columns: Columns) -> None:
        """Write one object per row; several labels are a list."""
        for text, labels in rows:
            record: dict[str, object] = {columns.text or "text": text}
            if labels is not None:
                single = len(labels) == 1 and not columns.separator
                record[columns.label or "label"] = labels[0] if single else labels
            stream.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")


register(JsonLines())
