"""Text of sparse rows, svmlight's or the Extreme Classification Repository's, block by block.

The engine parses blocks of whole lines; here is what makes a file of them: its header, where its
features count from, and words for what is wrong with a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO, Literal, TypeAlias

from ..core import _engine

Format: TypeAlias = Literal["svmlight", "xmc"]
Base: TypeAlias = bool | Literal["auto"]

_LARGEST_INDEX = 2**31 - 2  # of a feature: matrices have 32 bits for it
_LARGEST_LABEL = 2**53 - 1  # what every tool holds exactly, also those that have labels as numbers


class RowText:
    """The text of a file of rows, while it is read once.

    `n_rows` counts the rows parsed so far. `zero_based` and `n_features` are what was given or the
    header says; what is not known from them is known after `finish`.
    """

    def __init__(
        self,
        name: str,
        stream: IO[bytes],
        kind: Format | None,
        n_features: int | None,
        zero_based: Base,
        n_jobs: int,
    ) -> None:
        self.name, self.n_jobs = name, n_jobs
        self._stream = stream
        self.header: tuple[int, int, int] | None = None
        self._lines, self._start = 0, b""
        if kind != "svmlight":
            self._read_header()
        if kind == "xmc" and self.header is None:
            raise ValueError(
                f"{name}: an xmc file starts with three counts, 'rows features labels'"
            )
        self._limit, self.n_labels = self.header[1:] if self.header else (n_features, None)
        if self.header and n_features is not None and n_features < self.header[1]:
            raise ValueError(
                f"n_features must be at least the {self.header[1]} of {name}, got {n_features}"
            )
        self.n_features = n_features or self._limit
        self.zero_based: Base = True if self.header else zero_based
        self.n_rows = 0
        self._lowest, self._highest, self._highest_line = _LARGEST_INDEX, -1, 0

    @property
    def first(self) -> int:
        """The index that the first feature has; 0 as long as that is not known."""
        return 0 if self.zero_based else 1

    def parse(self, size: int) -> Iterator[_engine.TextRows]:
        """Yield the rows of the text, about `size` bytes of it at a time."""
        # Where features may count from 0 or 1, one more index is allowed than there are features.
        last = _LARGEST_INDEX
        if self._limit is not None:
            last = min(last, self._limit if self.zero_based == "auto" else self._last())
        labels = (-_LARGEST_LABEL, _LARGEST_LABEL)
        if self.n_labels is not None:
            labels = (0, self.n_labels - 1)
        # A blank line of an xmc file is a row without labels and features, as long as rows are due.
        due = self._lines + self.header[0] if self.header else 0
        for block in self._blocks(size):
            blank_rows = max(due - self._lines, 0)
            rows = _engine.TextRows.parse(block, self.first, last, *labels, blank_rows, self.n_jobs)
            if rows.error is not None:
                line, kind, word = rows.error
                text = word.decode("ascii", "backslashreplace")
                raise self._refusal(self._lines + line, kind, text)
            if rows.highest_feature > self._highest:
                self._highest = rows.highest_feature
                self._highest_line = self._lines + rows.highest_line
            self._lowest = min(self._lowest, rows.lowest_feature)
            self._lines += rows.n_lines
            self.n_rows += len(rows.feature_ends)
            yield rows

    def finish(self) -> None:
        """Check what can only be checked when all rows are parsed, and say what they had."""
        if not self.n_rows:
            raise ValueError(f"{self.name}: the file has no rows")
        if self.header and self.header[0] != self.n_rows:
            raise ValueError(
                f"{self.name}: the header says {self.header[0]} rows, there are {self.n_rows}"
            )
        if self.zero_based == "auto":
            self.zero_based = self._lowest == 0
            if self._limit is not None and self._highest > self._last():
                raise self._refusal(self._highest_line, "feature", f"{self._highest}")
        if self.n_features is None:
            self.n_features = max(self._highest, self.first) + 1 - self.first

    def _read_header(self) -> None:
        lines = []
        while line := self._stream.readline():
            lines.append(line)
            words = line.partition(b"#")[0].split()
            if len(words) == 3 and all(re.fullmatch(rb"\d{1,18}", word) for word in words):
                self.header = (int(words[0]), int(words[1]), int(words[2]))
                self._lines = len(lines)
                return
            if words:
                break
        self._start = b"".join(lines)

    def _blocks(self, size: int) -> Iterator[bytes]:
        """Yield the text after the header in parts of whole lines."""
        rest = [self._start]
        while part := self._stream.read(size):
            end = part.rfind(b"\n") + 1
            if end:
                yield b"".join([*rest, memoryview(part)[:end]])
                rest = []
            rest.append(part[end:])
        if last := b"".join(rest):
            yield last

    def _last(self) -> int:
        assert self._limit is not None
        return self.first + self._limit - 1

    def _refusal(self, line: int, kind: str, word: str) -> ValueError:
        index, _, value = word.partition(":")
        first, last = self.first, _LARGEST_INDEX
        if self._limit is not None:
            first = 1 if self.zero_based == "auto" else first
            last = first + self._limit - 1
        span = "" if self.n_labels is None else f" from 0 to {self.n_labels - 1}"
        fault = {
            "label": f"label {word!r} is not an integer{span}",
            "pair": f"{word!r} is not of the form index:value",
            "feature": f"feature index {index!r} is not an integer from {first} to {last}",
            "value": f"value {value!r} of feature {index} is not a finite number",
            "twice": f"feature index {index} occurs twice",
        }[kind]
        return ValueError(f"{self.name}, line {line + 1}: {fault}")
