"""CSV and TSV: a header with the names of the columns, then one row per line."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterable, Iterator
from typing import IO, Any

from .errors import EmptyFileError, FormatError, RowError
from .files import OpenFile, check_decoded
from .formats import Sample
from .tables import Columns, LabelledText, OpenTable, RecordOrError, TableFormat

_MAX_FIELD = 2**31 - 1  # bytes


class Delimited(TableFormat):
    """Fields between delimiters, quoted where needed."""

    delimiters: str

    def open(self, file: OpenFile, columns: Columns, labelled: bool) -> OpenTable:
        """Read the header."""
        csv.field_size_limit(_MAX_FIELD)
        first_line = Sample(file.path, file.start).first_line
        # In some countries, CSV files use semicolons.
        delimiter = max(self.delimiters, key=lambda each: first_line.count(each.encode()))
        rows = _rows(csv.reader(file.lines(), delimiter=delimiter, strict=True))
        _, header = next(rows, (0, None))
        if header is None:
            raise EmptyFileError(path=file.path)
        if isinstance(header, RowError):
            raise FormatError(f"the header cannot be read: {header.reason}", path=file.path)
        return header, ((line, _record(cells, header)) for line, cells in rows)

    def write(self, stream: IO[bytes], rows: Iterable[LabelledText], columns: Columns) -> None:
        """Write texts and labels; several labels are joined by the separator."""
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
                reason = (
                    f"it has {len(labels)} labels; {self.name} files need a separator between them"
                )
                raise RowError("label", reason, row=number)
            if separator and any(separator in label for label in labels):
                reason = f"a label contains the separator {separator!r}; use another separator"
                raise RowError("label", reason, row=number)
            writer.writerow([text, (separator or "").join(labels)])


def _rows(reader: Any) -> Iterator[tuple[int, list[str] | RowError]]:
    """Yield the cells of every row, with the number of its first line."""
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader, None)
            if cells is None:
                return
            check_decoded(" ".join(cells))
        except csv.Error as error:
            at_end = str(error) == "unexpected end of data"  # within quotes
            yield line, RowError("syntax", "a quote is never closed" if at_end else str(error))
        except RowError as error:
            yield line, error
        else:
            if cells:
                yield line, cells


def _record(cells: list[str] | RowError, header: list[str]) -> RecordOrError:
    if isinstance(cells, RowError):
        return cells
    if len(cells) != len(header):
        return RowError("fields", f"{len(cells)} fields, but the header has {len(header)}")
    return dict(zip(header, cells, strict=True))


class Csv(Delimited):
    """Comma-separated values, or semicolon-separated where the header has semicolons."""

    name = "csv"
    suffixes = (".csv",)
    delimiters = ",;"

    def detect(self, sample: Sample) -> bool:
        """Return whether a table is expected, or the first line has a comma or semicolon."""
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
