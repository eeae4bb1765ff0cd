"""The positions of n-grams in a text, as scikit-learn's analyzers find them.

`settings` are those of texts, `ltls.settings.Text`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from .patterns import found_places

Span: TypeAlias = tuple[int, int]
Place: TypeAlias = tuple[str, int, int]

WORD = r"(?u)\b\w+\b"  # scikit-learn's default ignores words of one letter: "I", "5", "c"


def ngram_places(text: str, kind: str, settings: Any) -> dict[str, list[Span]]:
    """Return the n-grams of a text, "words" or "characters", and their positions."""
    shown = text.lower() if settings.lowercase else text
    origin = _origins(text, shown)
    places: dict[str, list[Span]] = {}
    for ngram, start, end in _ngrams(shown, kind, settings):
        spans = places.setdefault(ngram, [])
        if end > start:
            spans.append((origin[start], origin[end - 1] + 1))
    return places


def each_ngram(text: str, kind: str, settings: Any) -> Iterator[str]:
    """Yield the n-grams of a text, in any order; none is kept."""
    shown = text.lower() if settings.lowercase else text
    return (ngram for ngram, _, _ in _ngrams(shown, kind, settings))


def _ngrams(shown: str, kind: str, settings: Any) -> Iterator[Place]:
    low, high = settings.kinds[kind]
    if kind == "words":
        return _words(_tokens(shown, settings), low, high)
    return _characters(shown, low, high)


def _tokens(text: str, settings: Any) -> Iterator[Place]:
    """Yield the words of a text, without stop words."""
    ignored = set(settings.stop_words or ())
    if callable(settings.tokenizer):
        places = _found(text, settings.tokenizer(text))
    elif settings.tokenizer is not None:
        places = found_places(settings.tokenizer, text)
    else:
        places = ((match[0], *match.span()) for match in re.finditer(WORD, text))
    return (place for place in places if place[0] not in ignored)


def _found(text: str, words: list[str]) -> Iterator[Place]:
    """Yield words and their positions; a word that is not in the text has an empty span."""
    last = 0
    for word in words:
        at = text.find(word, last)
        if at < 0:
            yield word, last, last
        else:
            last = at + len(word)
            yield word, at, last


def _words(tokens: Iterable[Place], low: int, high: int) -> Iterator[Place]:
    last: deque[Place] = deque(maxlen=high)
    for token in tokens:
        last.append(token)
        for first in range(len(last) - low, -1, -1):
            some = list(last)[first:]
            yield " ".join(word for word, _, _ in some), some[0][1], token[2]


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
    """Return the original position of every character of a lowercased text."""
    if len(shown) == len(text):
        return list(range(len(text)))
    origins = [place for place, letter in enumerate(text) for _ in letter.lower()]
    # The length of a few letters in lower case depends on context.
    return (origins + [len(text) - 1] * len(shown))[: len(shown)]
