"""A file format of the tests: ``label|label = text`` lines below a line ``toy``."""

from ltls.io.errors import RowError
from ltls.io.tables import TableFormat, TableReader


class Toy(TableFormat):
    name = "toy"
    kind = "text"
    suffixes = (".toy",)

    def detect(self, sample):
        return sample.first_line == b"toy"

    def open(self, stream, path, columns, labelled):
        return TableReader(None, self._records(stream))

    def _records(self, stream):
        for number, line in enumerate(stream, 1):
            if number == 1:
                continue
            labels, equals, text = line.decode().rstrip("\n").partition(" = ")
            if equals:
                yield number, {"text": text, "label": labels.split("|")}
            else:
                yield number, RowError("syntax", "it has no ' = '")

    def write(self, stream, rows, columns):
        stream.write(b"toy\n")
        for text, labels in rows:
            stream.write(f"{'|'.join(labels)} = {text}\n".encode())
