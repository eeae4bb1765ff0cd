"""Text from files made safe for a terminal, which would obey the escape sequences in it."""

from __future__ import annotations

import re
from typing import IO, Any

# Control characters (C0, DEL and C1) but tab and line feed, and those that reorder what is shown.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""Return text with control characters as escapes, such as ``\x1b``.

    Examples
    --------
    >>> from ltls.cli.printable import printable
    >>> print(printable("\x1b[31mred"))
    \x1b[31mred
    """
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


class PrintableStream:
    """A text stream whose output is made printable if it goes to a terminal."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()

    def write(self, text: str) -> int:
        """Write text: to a terminal without control characters, as it is to a file or a pipe."""
        return self._stream.write(printable(text) if self._is_terminal else text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
