"""Regular expressions for words, and how long they may take.

Python's engine tries all ways in which an expression can match: 2ⁿ for ``(?:a+)+$`` and n letters,
and no other thread runs meanwhile. So an expression must have a bounded number of ways, whatever
the text. They are counted in the automaton of Glushkov (1961): its states are the places of an
expression that match a character. Transitions are counted, too, since one place may lead to another
through different loops.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import lru_cache, reduce
from itertools import product
from typing import Any, NamedTuple

import numpy as np

_parser, _compiler = (
    importlib.import_module(name)
    for name in (
        ("re._parser", "re._compiler")
        if sys.version_info >= (3, 11)
        else ("sre_parse", "sre_compile")
    )
)
_MAX_WAYS = 64
_MAX_PLACES = 500
_MAX_STEPS = 20_000
_MAX_AHEAD = 16
_MAX_LENGTH = 10_000
# A text is searched in pieces, since the time to find a word may be quadratic in their length.
_PIECE = 1024  # characters
_LONGEST = _PIECE // 2
_TOO_MANY = (
    "the ways in which it can match a text, and so its time, grow with the text; optional parts "
    r"and repetitions must begin with other characters than what may follow: \w+(?:-\w+)*, not "
    r"(?:\w+-?)+"
)
_UNSUPPORTED = (
    "it must not have references to groups, possessive quantifiers, atomic groups, or lookarounds "
    f"in one another or of more than {_MAX_AHEAD} repetitions"
)


# Matching


def found_words(pattern: str, text: str) -> list[str]:
    """Return the words of a text: what a regular expression matches, or its group."""
    if len(text) <= _PIECE:
        return re.findall(pattern, text)
    return [word for word, _, _ in found_places(pattern, text)]


def found_places(pattern: str, text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the words of a text and their positions.

    In a text of more than 1024 characters, words of more than 512 may be split.
    """
    compiled = re.compile(pattern)
    group = min(compiled.groups, 1)  # as scikit-learn does: the group is the word
    at, end = 0, -1
    while end < len(text):
        first, end = at, at + _PIECE
        at = end - _LONGEST if end < len(text) else end + 1
        for match in compiled.finditer(text, first, end):
            may_go_on = match.end() >= at
            if may_go_on and match.start() > first:
                at = match.start()
                break
            yield match[group] or "", *match.span(group)
            if may_go_on:
                at = match.end()
                break


# Checking


def check_pattern(pattern: str) -> None:
    """Raise an error unless a tokenizer is a regular expression that matches words quickly."""
    reason = _problem(pattern)
    if reason:
        raise ValueError(
            f"tokenizer must be a regular expression that matches a word, got {pattern!r}: {reason}"
        )


@lru_cache(64)
def _problem(pattern: str) -> str:
    if len(pattern) > _MAX_LENGTH:
        return f"it has more than {_MAX_LENGTH} characters"
    try:
        n_groups = re.compile(pattern).groups
        if n_groups > 1:
            return f"it has {n_groups} groups, but at most one can be the word"
        _Automaton(_parser.parse(pattern)).check()
    except (re.error, OverflowError, RecursionError, ValueError) as error:
        return str(error)
    return ""


class _Part(NamedTuple):
    """A part of an expression, and in how many ways it can match.

    Parameters
    ----------
    first, last : Counter
        The number of ways in which a match begins, or ends, at each place.
    nothing : int
        The number of ways in which the part matches the empty string.
    """

    first: Counter[int]
    last: Counter[int]
    nothing: int


class _Automaton:
    """The places of an expression, and in how many ways one follows another."""

    def __init__(self, tree: Any) -> None:
        self._sets: dict[tuple[str, int], int] = {}  # of characters, numbered
        self._spans: list[list[tuple[int, int]]] = []  # of every set
        self._set_of: list[int] = []  # by place
        self._next: defaultdict[int, Counter[int]] = defaultdict(Counter)
        self._n_steps = 0
        self._lookarounds: list[_Part] = []
        self._whole = self._sequence(tree, tree.state.flags, False)

    def check(self) -> None:
        """Raise an error if the number of ways to match a text has no bound."""
        kinds = self._kinds()
        for part in (*self._lookarounds, self._whole):
            pending, seen = [part.first], set()
            while pending:
                ways = pending.pop()
                for kind in {kind for place in ways for kind in kinds[self._set_of[place]]}:
                    found = {p: n for p, n in ways.items() if kind in kinds[self._set_of[p]]}
                    if sum(found.values()) > _MAX_WAYS:
                        raise ValueError(_TOO_MANY)
                    key = tuple(sorted(found.items()))
                    if key not in seen:
                        seen.add(key)
                        pending.append(self._after(found))

    def _after(self, ways: dict[int, int]) -> Counter[int]:
        """Return the next places of some places, and in how many ways they are reached."""
        after: Counter[int] = Counter()
        for place, m in ways.items():
            self._count(1 + len(self._next[place]))
            for other, n in self._next[place].items():
                after[other] += m * n
        return after

    def _kinds(self) -> list[set[bytes]]:
        """Return the kinds of characters of every set: those that are in the same sets."""
        cuts = np.unique([end for spans in self._spans for span in spans for end in span])
        inside = np.zeros((len(self._spans), len(cuts)), bool)
        for row, spans in zip(inside, self._spans, strict=True):
            first, last = np.array(spans, np.int64).reshape(-1, 2).T
            row[:] = np.searchsorted(first, cuts, "right") > np.searchsorted(last, cuts, "right")
        names = [column.tobytes() for column in inside.T]
        return [{names[at] for at in np.flatnonzero(row)} for row in inside]

    def _count(self, n: int) -> None:
        self._n_steps += n
        if self._n_steps > _MAX_STEPS:
            raise ValueError("it is too large")

    def _sequence(self, items: Any, flags: int, inside: bool) -> _Part:
        whole = _NOTHING
        for operation, argument in items:
            whole = self._joined(whole, self._part(operation, argument, flags, inside))
        return whole

    def _joined(self, a: _Part, b: _Part) -> _Part:
        self._link(a.last, b.first)
        first, last = _sum(a.first, b.first, a.nothing), _sum(b.last, a.last, b.nothing)
        return _Part(first, last, min(a.nothing * b.nothing, _MAX_WAYS + 1))

    def _link(self, ends: Counter[int], begins: Counter[int]) -> None:
        self._count(len(ends) * len(begins))
        for (a, m), (b, n) in product(ends.items(), begins.items()):
            self._next[a][b] = min(self._next[a][b] + m * n, _MAX_WAYS + 1)

    def _part(self, operation: Any, argument: Any, flags: int, inside: bool) -> _Part:
        """Return a part, which may be `inside` a lookaround."""
        name = str(operation)
        self._count(1)
        if name == "AT":
            return _NOTHING
        if name == "SUBPATTERN":
            _, added, removed, items = argument
            return self._sequence(items, (flags | added) & ~removed, inside)
        if name == "BRANCH":
            parts = [self._sequence(items, flags, inside) for items in argument[1]]
            return reduce(_either, parts)
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            low, high, items = argument
            return self._repeated(low, high, items, flags, inside)
        if name in ("ASSERT", "ASSERT_NOT") and not inside:  # matched on its own
            self._lookarounds.append(self._sequence(argument[1], flags, True))
            return _NOTHING
        if name in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            return self._place((operation, argument), flags)
        raise ValueError(_UNSUPPORTED)

    def _repeated(self, low: int, high: Any, items: Any, flags: int, inside: bool) -> _Part:
        if inside and high > _MAX_AHEAD:
            raise ValueError(_UNSUPPORTED)
        n_before = len(self._set_of)
        part = self._sequence(items, flags, inside)
        endless = high == _parser.MAXREPEAT
        if len(self._set_of) == n_before + 1 and high > 1:  # a{2,5} counts as a+
            low, endless = min(low, 1), True
        if part.nothing and high > 1 and (low > 1 or not endless):
            raise ValueError(_TOO_MANY)
        if endless:
            self._link(part.last, part.first)
        n_copies = max(low, 1) if endless else high
        whole = _NOTHING
        for n in range(n_copies):  # from the last to the first
            copy = self._sequence(items, flags, inside) if n else part
            whole = self._joined(copy, whole)
            if n < n_copies - low:
                whole = _either(whole, _NOTHING)
        return whole

    def _place(self, item: Any, flags: int) -> _Part:
        """Return a new place, for a set of characters."""
        if len(self._set_of) >= _MAX_PLACES:
            raise ValueError("it is too large")
        key = repr(item), flags
        if key not in self._sets:
            self._sets[key] = len(self._sets)
            self._spans.append(_spans(item, flags))
        place = Counter({len(self._set_of): 1})
        self._set_of.append(self._sets[key])
        return _Part(place, place, 0)


_NOTHING = _Part(Counter(), Counter(), 1)


def _either(a: _Part, b: _Part) -> _Part:
    nothing = min(a.nothing + b.nothing, _MAX_WAYS + 1)
    return _Part(a.first + b.first, a.last + b.last, nothing)


def _sum(a: Counter[int], b: Counter[int], n: int) -> Counter[int]:
    """Return a + n b."""
    return a + Counter({place: n * m for place, m in b.items()})


def _spans(item: Any, flags: int) -> list[tuple[int, int]]:
    """Return the ranges of characters that an expression of one character matches."""
    state = _parser.State()
    state.flags = flags
    one = _parser.SubPattern(state, [item])
    several = _parser.SubPattern(state, [(_parser.MAX_REPEAT, (1, _parser.MAXREPEAT, one))])
    return [match.span() for match in _compiler.compile(several, flags).finditer(_every())]


@lru_cache(1)
def _every() -> str:
    return np.arange(sys.maxunicode + 1, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
