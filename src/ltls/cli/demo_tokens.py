"""Python code as a classification problem: the next token, given the tokens before it.

The code is the standard library, which is on every machine that has Python. Features are hashes of
the tokens, so that no vocabulary is needed to predict other code.
"""

from __future__ import annotations

import re
import sysconfig
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

__all__ = ["Examples", "examples_of", "features", "features_before", "files_below", "tokens_of"]

NEWLINE, INDENT, DEDENT = "⏎", "⇥", "⇤"
DOCSTRING, LONG_STRING = '"""…"""', '"…"'
_MAX_STRING = 40  # characters; longer strings are all one token
_CONTEXT = 4  # number of previous tokens
_START = "\0"  # the token before the first one
# Hash bits of each of the four tokens, and of the 2-, 3- and 4-grams that end with the last one.
_BITS = (15, 14, 14, 14, 16, 16, 16)
_OFFSETS = np.concatenate([[0], np.cumsum([1 << bits for bits in _BITS])])
N_FEATURES = int(_OFFSETS[-1])
_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio: Fibonacci hashing

_TOKEN = re.compile(
    r"""
    [ \t\f\r]+ | \#[^\n]* | \\\r?\n                                # nothing
  | (  \n(?:[ \t\f\r]*(?:\#[^\n]*)?\n)*[ \t]*                      # a new line and how it begins
    | [rbfuRBFU]{0,2}(?:\"{3}(?:\\.|[^\\])*?(?:\"{3}|\Z)
                       |'{3}(?:\\.|[^\\])*?(?:'{3}|\Z)
                       |"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)
    | 0[xXoObB][\da-fA-F_]+ | (?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?[jJ]?
    | \w+
    | \.\.\. | -> | (?:\*\*|//|>>|<<|[-+*/%@&|^=!<>:])=? | \S
    )
    """,
    re.VERBOSE | re.DOTALL,
)


def tokens_of(code: str) -> list[str]:
    r"""Return the tokens of Python code, which may be incomplete.

    Comments are ignored; all docstrings are one token, as are all strings of over 40 characters;
    indentation is a token where it changes.

    Examples
    --------
    >>> from ltls.cli.demo_tokens import tokens_of
    >>> tokens_of("def double(x):\n    return 2 * x  # twice\n")
    ['def', 'double', '(', 'x', ')', ':', '⏎', '⇥', 'return', '2', '*', 'x', '⏎', '⇤']
    """
    tokens: list[str] = []
    indents, depth = [0], 0
    for token in _TOKEN.findall(code):
        if not token:
            continue
        if token[0] == "\n":
            if depth or not tokens:
                continue
            tokens.append(NEWLINE)
            indent = len(token.rpartition("\n")[2].expandtabs())
            while indent < indents[-1]:
                indents.pop()
                tokens.append(DEDENT)
            if indent > indents[-1]:
                indents.append(indent)
                tokens.append(INDENT)
            continue
        if token in "([{":
            depth += 1
        elif token in ")]}":
            depth = max(depth - 1, 0)
        elif token[-1] in "\"'":
            if "\n" in token or token.endswith(('"""', "'''")):
                token = DOCSTRING
            elif len(token) > _MAX_STRING:
                token = LONG_STRING
        tokens.append(token)
    return tokens


def features_before(tokens: Sequence[str]) -> csr_array:
    """Return one row: the features of the token that comes after some tokens.

    Examples
    --------
    >>> from ltls.cli.demo_tokens import features_before, tokens_of
    >>> features_before(tokens_of("import numpy as")).nnz
    7
    """
    hashes = [_hash(token) for token in (*[_START] * _CONTEXT, *tokens)[-_CONTEXT:]]
    return features(np.array([*hashes, 0], np.uint64), np.array([_CONTEXT]))


def features(hashes: npt.NDArray[np.uint64], places: npt.NDArray[np.int64]) -> csr_array:
    """Return the features of the tokens at some places: hashes of the tokens before them."""
    before = [hashes[places - back] for back in range(1, _CONTEXT + 1)]
    keys, gram = list(before), before[0]
    for token in before[1:]:
        gram = _mixed(gram * np.uint64(31) + token)
        keys.append(gram)
    columns = np.empty((len(places), len(keys)), np.int32)
    for i, (key, bits) in enumerate(zip(keys, _BITS, strict=True)):
        columns[:, i] = _OFFSETS[i] + (_mixed(key) >> np.uint64(64 - bits)).astype(np.int32)
    indptr = np.arange(len(places) + 1, dtype=np.int32) * len(keys)
    values = np.ones(columns.size, np.float32)
    return csr_array((values, columns.ravel(), indptr), shape=(len(places), N_FEATURES))


def _mixed(key: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    return (key ^ (key >> np.uint64(29))) * _ODD


def _hash(token: str) -> int:
    return zlib.crc32(token.encode("utf-8", "surrogatepass")) + 1


@dataclass(frozen=True)
class Examples:
    """Tokens, the features of each, and the previous token, for a bigram table."""

    X: csr_array
    y: npt.NDArray[Any]
    before: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.y)


def examples_of(files: Iterable[Sequence[str]]) -> Examples:
    """Return every token of every file as an example.

    Examples
    --------
    >>> from ltls.cli.demo_tokens import examples_of, tokens_of
    >>> examples = examples_of([tokens_of("x = 1"), tokens_of("y = 2")])
    >>> examples.y.tolist(), examples.X.shape[0]
    (['x', '=', '1', 'y', '=', '2'], 6)
    """
    ids: dict[str, int] = {_START: 0}
    stream: list[int] = []
    for tokens in files:
        stream.extend([0] * _CONTEXT)
        stream.extend([ids.setdefault(token, len(ids)) for token in tokens])
    numbers = np.array(stream, np.int64)
    vocabulary = np.array([*ids, ""], object)[:-1]  # with "" NumPy does not make it 2-D
    hashes = np.array([_hash(token) for token in ids], np.uint64)[numbers]
    places = np.flatnonzero(numbers)
    before = vocabulary[numbers[places - 1]] if len(places) else vocabulary[:0]
    return Examples(features(hashes, places), vocabulary[numbers[places]], before)


def files_below(folder: Path | None = None) -> list[Path]:
    """Return the Python files of a folder, by default of the standard library, sorted.

    Examples
    --------
    >>> from ltls.cli.demo_tokens import files_below
    >>> any(path.name == "argparse.py" for path in files_below())
    True
    """
    root = Path(sysconfig.get_path("stdlib")) if folder is None else folder
    if not root.is_dir():
        raise ValueError(f"source must be a folder of Python files, got {root}")
    installed = {"site-packages", "dist-packages"}
    return sorted(
        path
        for path in root.rglob("*.py")
        if not installed.intersection(path.relative_to(root).parts)
    )
