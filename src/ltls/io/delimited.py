"""CSV and TSV: a header with the names of the columns, then one row per line."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterable, Iterator
from typing import IO, Any

from ..core.streams import peek_first_line
from .errors import EmptyFileError, FormatError, PathLike, RowError
from .formats import Sample, register
from .tables import Columns, LabelledText, Record, TableFormat, TableReader
from .text_lines import TextLines

_MAX_FIELD = 2**31 - 1  # bytes


class Delimited(TableFormat):
    """Fields between delimiters, quoted where needed."""

    delimiters: str

    def open(
        self, stream: io.BufferedReader, path: PathLike, columns: Columns, labelled: bool
    ) -> TableReader:
        """Read the header."""
        csv.field_size_limit(_MAX_FIELD)
        header_line = peek_first_line(stream)
        # In some countries a CSV file has semicolons.
        delimiter = max(self.delimiters, key=lambda each: header_line.count(each.encode()))
        lines = TextLines(stream)
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        try:
            header = next(reader, None)
        except csv.Error as error:
            raise FormatError(f"the header cannot be read: {error}", path=path) from None
        if header is None:
            raise EmptyFileError(path=path)
        return TableReader(header, _records(reader, lines, header))

    def write(self, stream: IO[bytes], rows: Iterable[LabelledText], columns: Columns) -> None:
        """Write texts and labels; several labels have the separator between them."""
        separator = columns.separator
        writer = csv.writer(
            codecs.getwriter("utf-8")(stream), delimiter=self.delimiters[0], lineterminator="\n"
        )
        writer.writerow([name for name in (columns.text, columns.label) if name])
        for number, (text, labels) in enumerate(rows, 1):
            if labels is None:
                writer.writerow([text])
                continue
            if separator is None and len(labels) != 1:
                reason = f"it has {len(labels)} labels; {self.name} needs a separator between them"
                raise RowError("label", reason, row=number)
            if separator and any(separator in label for label in labels):
                reason = f"a label contains the separator {separator!r}; use another"
                raise RowError("label", reason, row=number)
            writer.writerow([text, (separator or "").join(labels)])


def _records(reader: Any, lines: TextLines, header: list[str]) -> Iterator[tuple[int, Record]]:
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            # Strict parsers raise an error if the file ends within quotes.
            reason = "a quote is never closed" if lines.exhausted else str(error)
            yield line, RowError("syntax", reason)
            continue
        if not cells:
            continue
        if error_of_line := lines.take_error():
            yield line, error_of_line
        elif len(cells) != len(header):
            yield line, RowError("fields", f"{len(cells)} fields, the header has {len(header)}")
        else:
            yield line, dict(zip(header, cells, strict=True))


class Csv(Delimited):
    """Comma-separated values, or semicolon-separated where the header has semicolons."""

    name = "csv"
    suffixes = (".csv",)
    delimiters = ",;"

    def detect(self, sample: Sample) -> bool:
        """Return whether a table is expected, or the first line has commas or semicolons."""
        expected = sample.columns_named or sample.expects_table
        return expected or b"," in sample.first_line or b";" in sample.first_line


class Tsv(Delimited):
    """Tab-separated values."""

    name = "tsv"
    suffixes = (".tsv",)
    delimiters = "\t"

    def detect(self, sample: Sample) -> bool:
        """Return whether the first line has tabs."""
        return b"\t" in sample.first_line


register(Csv())
register(Tsv())
