"""Regular expressions of words.

They have the syntax of Python's re, which may take exponential time for a text, while no other
thread runs. So words are found by the package regex, which lets other threads run, and stops.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

_SECONDS, _PER_CHARACTER = 2.0, 1e-5  # of processor time, in all threads of the process
_MAX_LENGTH = 10_000


def check_pattern(pattern: str) -> None:
    """Raise an error unless a tokenizer is a regular expression that matches a word."""
    reason = ""
    try:
        n_groups = re.compile(pattern[:_MAX_LENGTH]).groups
        if n_groups > 1:
            reason = f"it has {n_groups} groups, but at most one can be the word"
    except (re.error, OverflowError, RecursionError) as error:
        reason = str(error)
    if len(pattern) > _MAX_LENGTH:
        reason = f"it has more than {_MAX_LENGTH:,} characters"
    if reason:
        raise ValueError(
            "tokenizer must be a regular expression that matches a word, got "
            f"{pattern[:200]!r}: {reason}"
        )


def found_words(pattern: str, text: str) -> list[str]:
    """Return the words of a text."""
    with _in_time(pattern, text) as limits:
        words: list[str] = _compiled(pattern).findall(text, **limits)
    return words


def found_places(pattern: str, text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the words of a text and their positions; as in scikit-learn, a group is the word."""
    group = min(_compiled(pattern).groups, 1)
    with _in_time(pattern, text) as limits:
        for match in _compiled(pattern).finditer(text, **limits):
            yield match[group] or "", *match.span(group)


@lru_cache(64)
def _compiled(pattern: str) -> Any:
    import regex

    return regex.compile(pattern)


@contextmanager
def _in_time(pattern: str, text: str) -> Iterator[dict[str, Any]]:
    """Return limits of a search; an error if it exceeds them."""
    try:
        yield {"concurrent": True, "timeout": _SECONDS + _PER_CHARACTER * len(text)}
    except (TimeoutError, MemoryError):
        raise ValueError(
            f"the tokenizer {pattern[:200]!r} takes too long to find the words of a text of "
            f"{len(text):,} characters: optional parts and repetitions must begin with other "
            r"characters than what may follow, as in \w+(?:-\w+)*, not (?:\w+-?)+"
        ) from None
