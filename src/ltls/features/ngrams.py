"""Where the n-grams of a text are, counted as scikit-learn's analyzers do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

Span: TypeAlias = tuple[int, int]
Place: TypeAlias = tuple[str, int, int]

WORD = r"(?u)\b\w+\b"  # scikit-learn's default ignores words of one letter: "I", "5", "c"


class Settings(Protocol):
    """What decides the n-grams of a text."""

    @property
    def lowercase(self) -> bool:
        """Whether texts are converted to lower case."""

    @property
    def stop_words(self) -> tuple[str, ...] | None:
        """Words to ignore."""

    @property
    def tokenizer(self) -> str | Callable[[str], list[str]] | None:
        """A regular expression that matches a word, or a function from a text to its words."""

    @property
    def kinds(self) -> dict[str, tuple[int, int]]:
        """The n-gram ranges of words and characters."""


def ngram_places(text: str, kind: str, settings: Settings) -> dict[str, list[Span]]:
    """Return the n-grams of a text, "words" or "characters", and their places in it."""
    shown = text.lower() if settings.lowercase else text
    origin = _origins(text, shown)
    low, high = settings.kinds[kind]
    if kind == "words":
        ngrams = _words(list(_tokens(shown, settings)), low, high)
    else:
        ngrams = _characters(shown, low, high)
    places: dict[str, list[Span]] = {}
    for ngram, start, end in ngrams:
        spans = places.setdefault(ngram, [])
        if end > start:
            spans.append((origin[start], origin[end - 1] + 1))
    return places


def _tokens(text: str, settings: Settings) -> Iterator[Place]:
    """Yield the words of a text but for stop words."""
    ignored = set(settings.stop_words or ())
    if callable(settings.tokenizer):
        places = _found(text, settings.tokenizer(text))
    else:
        pattern = re.compile(settings.tokenizer or WORD)
        group = min(pattern.groups, 1)  # as scikit-learn does: the group is the word
        places = ((match[group], *match.span(group)) for match in pattern.finditer(text))
    return (place for place in places if place[0] not in ignored)


def _found(text: str, words: list[str]) -> Iterator[Place]:
    """Yield words and where they are; one that the text does not have takes no place."""
    last = 0
    for word in words:
        at = text.find(word, last)
        if at < 0:
            yield word, last, last
        else:
            last = at + len(word)
            yield word, at, last


def _words(tokens: list[Place], low: int, high: int) -> Iterator[Place]:
    for n in range(low, high + 1):
        for first in range(len(tokens) - n + 1):
            some = tokens[first : first + n]
            yield " ".join(token for token, _, _ in some), some[0][1], some[-1][2]


def _characters(text: str, low: int, high: int) -> Iterator[Place]:
    for match in re.finditer(r"\S+", text):
        start, end = match.span()
        word = f" {match[0]} "
        for n in range(low, high + 1):
            for offset in range(max(len(word) - n, 0) + 1):
                first = start - 1 + offset
                yield word[offset : offset + n], max(first, start), min(first + n, end)
            if n >= len(word):  # a short word counts once
                break


def _origins(text: str, shown: str) -> list[int]:
    """Return for every character of a text in lower case where it comes from."""
    if len(shown) == len(text):
        return list(range(len(text)))
    origins = [place for place, letter in enumerate(text) for _ in letter.lower()]
    # A few letters are longer or shorter in context.
    return (origins + [len(text) - 1] * len(shown))[: len(shown)]
