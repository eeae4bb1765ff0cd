"""svmlight files, and those of the Extreme Classification Repository (xmc).

Lines are ``label,label,... index:value ...``. An xmc file has a header ``rows features labels``
and numbers features and labels from 0. The engine parses blocks of whole lines; this module reads
the header, detects whether features start at 0 or 1, and reports bad lines.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from ..core import _engine
from .errors import EmptyFileError, FormatError, RowError, TooManyFeaturesError
from .files import OpenFile
from .formats import Sample, SparseFormat, SparseOptions, SparseReader

if TYPE_CHECKING:
    import scipy.sparse as sp

_MAX_INDEX = 2**31 - 2  # largest feature index: indices are int32
_LINES_AT_A_TIME = 256  # in a block with bad lines
_MAX_LABEL = 2**53 - 1  # exactly representable as a double
_INTEGERS = rb"[+-]?\d+(,[+-]?\d+)*"
_LINE = re.compile(rb"(" + _INTEGERS + rb")?(\s*qid:\d+)?(\s*\d+:\S+)*\s*(#.*)?")
_HEADER = re.compile(rb"\s*(\d{1,18})\s+(\d{1,18})\s+(\d{1,18})\s*(#.*)?")


class LineReader(SparseReader):
    """One pass over the lines of an svmlight or, if it has a header, an xmc file."""

    def __init__(self, file: OpenFile, options: SparseOptions, has_header: bool) -> None:
        self.file = file
        self.n_features, self.zero_based = options.n_features, options.zero_based
        self._n_jobs = options.n_jobs
        self._limit = options.n_features  # largest number of features
        self._lines = 0  # before the block that is parsed
        self._declared_rows: int | None = None
        self._last_row_line = 0  # up to which a blank line is a row
        if has_header:
            self._read_header()
        self._lowest, self._highest, self._highest_line = _MAX_INDEX, -1, 0

    def _read_header(self) -> None:
        found = None
        for line in self.file.stream:
            self._lines += 1
            found = _HEADER.fullmatch(line.rstrip())
            if found or line.partition(b"#")[0].strip():
                break
        if found is None:
            reason = "an xmc file starts with three counts, 'rows features labels'"
            raise FormatError(reason, path=self.file.path)
        self._declared_rows, self._limit, self.n_labels = map(int, found.group(1, 2, 3))
        # A blank line is a row without labels and features, until there are enough rows.
        self._last_row_line = self._lines + self._declared_rows
        if self.n_features is not None and self.n_features < self._limit:
            raise TooManyFeaturesError(self._limit, self.n_features, path=self.file.path)
        self.n_features = self.n_features or self._limit
        self.zero_based = True

    def blocks(self, size: int) -> Iterator[list[_engine.TextRows]]:
        """Yield the rows, from about `size` bytes of text at a time."""
        for text in self._texts(size):
            rows = self._parse(text, self._n_jobs)
            if rows.error is None or not self.file.skips_bad_rows:
                yield [self._counted(rows)]
                continue
            good: list[_engine.TextRows] = []
            lines = io.BytesIO(text).readlines()
            for start in range(0, len(lines), _LINES_AT_A_TIME):
                good += self._good_rows(lines[start : start + _LINES_AT_A_TIME])
            yield good

    def _texts(self, size: int) -> Iterator[bytes]:
        """Yield the text after the header in blocks of whole lines."""
        rest: list[bytes] = []
        while part := self.file.stream.read(size):
            end = part.rfind(b"\n") + 1
            if end:
                yield b"".join([*rest, memoryview(part)[:end]])
                rest = []
            rest.append(part[end:])
        if last := b"".join(rest):
            yield last

    def _good_rows(self, lines: list[bytes]) -> Iterator[_engine.TextRows]:
        """Yield the rows of some lines without the bad ones, at which the parser stops."""
        while (rows := self._parse(b"".join(lines), 1)).error is not None:
            bad = rows.error[0]
            error = self._error(rows.error)
            yield self._counted(self._parse(b"".join(lines[:bad]), 1))
            self.file.skip(error)
            self._lines += 1
            lines = lines[bad + 1 :]
        yield self._counted(rows)

    def _parse(self, text: bytes, n_jobs: int) -> _engine.TextRows:
        last = _MAX_INDEX
        if self._limit is not None:
            # If features may start at 0 or 1, one more index is allowed than there are features.
            last = min(last, self.first + self._limit - (self.zero_based != "auto"))
        labels = (-_MAX_LABEL, _MAX_LABEL) if self.n_labels is None else (0, self.n_labels - 1)
        blank_rows = max(self._last_row_line - self._lines, 0)
        return _engine.TextRows.parse(text, self.first, last, *labels, blank_rows, n_jobs)

    def _counted(self, rows: _engine.TextRows) -> _engine.TextRows:
        if rows.error is not None:
            raise self._error(rows.error)
        if rows.highest_feature > self._highest:
            self._highest = rows.highest_feature
            self._highest_line = self._lines + rows.highest_line
        self._lowest = min(self._lowest, rows.lowest_feature)
        self._lines += rows.n_lines
        self.file.n_good += len(rows.feature_ends)
        return rows

    def finish(self) -> None:
        """Check the number of rows and the largest index; set `zero_based` and `n_features`."""
        self.file.check_rows()
        if not self.file.n_good:
            raise EmptyFileError(path=self.file.path)
        n_rows = self.file.n_good + self.file.n_bad
        if self._declared_rows not in (None, n_rows):
            reason = f"the header says {self._declared_rows} rows, but there are {n_rows}"
            raise FormatError(reason, path=self.file.path)
        if self.zero_based == "auto":
            self.zero_based = self._lowest == 0
            if self._limit is not None and self._highest >= self.first + self._limit:
                self._lines = 0
                raise self._error((self._highest_line, "feature", b"%d" % self._highest))
        if self.n_features is None:
            self.n_features = max(self._highest, self.first) + 1 - self.first

    def _error(self, fault: tuple[int, str, bytes]) -> RowError:
        line, kind, word = fault
        text = word.decode("ascii", "backslashreplace")
        index, _, value = text.partition(":")
        first, last = self.first, _MAX_INDEX
        if self._limit is not None:
            first = 1 if self.zero_based == "auto" else first
            last = first + self._limit - 1
        labels = "" if self.n_labels is None else f" from 0 to {self.n_labels - 1}"
        reason = {
            "label": f"label {text!r} is not an integer{labels}",
            "pair": f"{text!r} is not of the form index:value",
            "feature": f"feature index {index!r} is not an integer from {first} to {last}",
            "value": f"value {value!r} of feature {index} is not a finite number",
            "twice": f"feature index {index} occurs twice",
        }[kind]
        kind = "duplicate" if kind == "twice" else kind
        return RowError(kind, reason, path=self.file.path, line=self._lines + line + 1)


class Svmlight(SparseFormat):
    """``label,label,... index:value ...`` lines; indices start at 1, or at 0 if index 0 occurs."""

    name = "svmlight"
    suffixes = (".svm", ".svmlight", ".libsvm")

    def detect(self, sample: Sample) -> bool:
        """Return whether the first line has labels and index:value pairs."""
        line = sample.first_line.strip()
        return not sample.columns_named and bool(line and _LINE.fullmatch(line))

    def open(self, file: OpenFile, options: SparseOptions) -> SparseReader:
        """Begin to read a file."""
        return LineReader(file, options, has_header=False)

    def write(self, stream: IO[bytes], X: sp.csr_matrix, Y: sp.csr_matrix) -> None:
        """Write rows; features start at 1."""
        without = [each.indptr[1:] == each.indptr[:-1] for each in (X, Y)]
        (empty,) = (without[0] & without[1]).nonzero()
        if len(empty):
            raise ValueError(
                "svmlight rows must have a feature or a label, got no features and no labels in "
                f"row {empty[0]}; use format='xmc'"
            )
        _dump(X, Y, stream, zero_based=False)


class Xmc(SparseFormat):
    """The format of the Extreme Classification Repository: a header, and indices from 0."""

    name = "xmc"
    suffixes = (".xmc",)

    def detect(self, sample: Sample) -> bool:
        """Return whether the first line that is not a comment has three counts."""
        lines = (line for line in sample.start.split(b"\n") if line.partition(b"#")[0].strip())
        return not sample.columns_named and bool(_HEADER.fullmatch(next(lines, b"").rstrip()))

    def open(self, file: OpenFile, options: SparseOptions) -> SparseReader:
        """Read the header."""
        return LineReader(file, options, has_header=True)

    def write(self, stream: IO[bytes], X: sp.csr_matrix, Y: sp.csr_matrix) -> None:
        """Write the header and the rows; features start at 0."""
        stream.write(b"%d %d %d\n" % (*X.shape, Y.shape[1]))
        _dump(X, Y, stream, zero_based=True)


def _dump(X: sp.csr_matrix, Y: sp.csr_matrix, stream: IO[bytes], zero_based: bool) -> None:
    from sklearn.datasets import (
        dump_svmlight_file,  # slow to import; not needed to detect a format
    )

    dump_svmlight_file(X, Y, stream, zero_based=zero_based, multilabel=True)
