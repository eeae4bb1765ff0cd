"""fastText files: one text per line, with its labels as ``__label__`` words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Any

from .errors import RowError
from .formats import Sample, register
from .tables import Columns, LabelledText, LineFormat

PREFIX = "__label__"


class FastText(LineFormat):
    """``__label__a __label__b the text`` lines."""

    name = "fasttext"
    kind = "text"
    suffixes = (".ft", ".fasttext")

    def detect(self, sample: Sample) -> bool:
        """Return whether the first line begins with a label."""
        return sample.first_line.startswith(PREFIX.encode())

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
        """Write one line per row; blanks within a label become underscores."""
        for text, labels in rows:
            words = [PREFIX + "_".join(label.split()) for label in labels or ()]
            stream.write(" ".join([*words, *text.split()]).encode() + b"\n")


register(FastText())
