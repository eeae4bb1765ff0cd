"""Lines of UTF-8 text, with what is wrong in them."""

from __future__ import annotations

from collections.abc import Iterable

from .errors import RowError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # that Windows puts before UTF-8


class TextLines:
    """An iterator over decoded lines.

    `exhausted` is True when all lines were read. A line that is not UTF-8 is returned with
    replacement characters, and `take_error` returns what was wrong in the lines since it was last
    called.
    """

    def __init__(self, stream: Iterable[bytes]) -> None:
        self._stream = iter(stream)
        self._first = True
        self._error: RowError | None = None
        self.exhausted = False

    def __iter__(self) -> TextLines:
        return self

    def __next__(self) -> str:
        line = next(self._stream, None)
        if line is None:
            self.exhausted = True
            raise StopIteration
        if self._first:
            line = line.removeprefix(_BYTE_ORDER_MARK)
            self._first = False
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            self._error = RowError("encoding", f"not UTF-8 at byte {error.start + 1}")
            return line.decode("utf-8", "replace")

    def take_error(self) -> RowError | None:
        """Return the last error, once."""
        error, self._error = self._error, None
        return error
