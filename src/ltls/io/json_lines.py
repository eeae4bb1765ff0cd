"""JSON lines: one object per line."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import IO

from .errors import PathLike, RowError
from .formats import Sample, register
from .tables import Columns, LabelledText, Record, TableFormat, TableReader


class JsonLines(TableFormat):
    """One JSON object per line; its keys are the columns."""

    name = "jsonl"
    suffixes = (".jsonl", ".ndjson")

    def detect(self, sample: Sample) -> bool:
        """Return whether the first line begins an object."""
        return sample.first_line.startswith(b"{")

    def open(
        self, stream: io.BufferedReader, path: PathLike, columns: Columns, labelled: bool
    ) -> TableReader:
        """Read up to the first object, whose keys are the names of the columns."""
        records = _records(stream)
        before: list[tuple[int, Record]] = []
        names = None
        for number, record in records:
            before.append((number, record))
            if isinstance(record, dict):
                names = list(record)
                break
        return TableReader(names, chain(before, records))

    def write(self, stream: IO[bytes], rows: Iterable[LabelledText], columns: Columns) -> None:
        """Write one object per row; several labels are a list."""
        for text, labels in rows:
            record: dict[str, object] = {columns.text or "text": text}
            if labels is not None:
                single = len(labels) == 1 and not columns.separator
                record[columns.label or "label"] = labels[0] if single else labels
            stream.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")


def _records(stream: Iterable[bytes]) -> Iterator[tuple[int, Record]]:
    for number, line in enumerate(stream, 1):
        if line.strip():
            yield number, _record(line)


def _record(line: bytes) -> Record:
    try:
        record = json.loads(line.strip())
    except json.JSONDecodeError as error:
        return RowError("syntax", f"not JSON: {error.msg} at character {error.pos + 1}")
    except (ValueError, RecursionError) as error:  # not UTF-8, or nested too deeply
        return RowError("syntax", f"not JSON: {error}")
    if not isinstance(record, dict):
        return RowError("type", f"a JSON object is needed, got {str(record)[:40]}")
    return record


register(JsonLines())
