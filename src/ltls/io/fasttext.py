"""fastText files: one text per line, with its labels as ``__label__`` words."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import IO

from .errors import PathLike, RowError
from .formats import Sample, register
from .tables import Columns, LabelledText, Record, TableFormat, TableReader
from .text_lines import TextLines

PREFIX = "__label__"


class FastText(TableFormat):
    """``__label__a __label__b the text`` lines."""

    name = "fasttext"
    kind = "text"
    suffixes = (".ft", ".fasttext")

    def detect(self, sample: Sample) -> bool:
        """Return whether the first line begins with a label."""
        return sample.first_line.startswith(PREFIX.encode())

    def open(
        self, stream: io.BufferedReader, path: PathLike, columns: Columns, labelled: bool
    ) -> TableReader:
        """Open the file for reading."""
        return TableReader(None, self._records(TextLines(stream), columns, labelled))

    def _records(
        self, lines: TextLines, columns: Columns, labelled: bool
    ) -> Iterator[tuple[int, Record]]:
        text, label = columns.text or "text", columns.label or "label"
        for number, line in enumerate(lines, 1):
            if error := lines.take_error():
                yield number, error
            elif line.strip():
                words = line.rstrip("\r\n").split(" ")
                labels = [word[len(PREFIX) :] for word in words if word.startswith(PREFIX)]
                rest = " ".join(word for word in words if not word.startswith(PREFIX))
                if labelled and not labels:  # fastText itself ignores such a line
                    yield number, RowError("label", f"it has no {PREFIX}")
                else:
                    yield number, {text: rest.strip(), label: labels}

    def write(self, stream: IO[bytes], rows: Iterable[LabelledText], columns: Columns) -> None:
        """Write one line per row; blanks within a label become underscores."""
        for text, labels in rows:
            words = [PREFIX + "_".join(label.split()) for label in labels or ()]
            stream.write(" ".join([*words, *text.split()]).encode() + b"\n")


register(FastText())
