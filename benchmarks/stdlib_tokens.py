"""Python's standard library as a corpus: the ids of all its tokens, whole files held out.

    python benchmarks/stdlib_tokens.py tokens.npz

writes the corpus of the Python that runs it, for a machine whose Python comes without the
library's own tests, which are most of it.
"""

from __future__ import annotations

import io
import sys
import sysconfig
import tokenize
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CONTEXT = 8  # tokens that a model sees
LEAST = 2  # how often the files to learn from must have a token
NAMES = {
    tokenize.NEWLINE: "<newline>",
    tokenize.INDENT: "<indent>",
    tokenize.DEDENT: "<dedent>",
    tokenize.ENDMARKER: "<end>",
}
PARTS = {"train": range(17), "validation": range(17, 18), "test": range(18, 20)}


@dataclass(frozen=True)
class Corpus:
    """Token ids of the three parts, the most frequent token having id 0.

    Every file begins with CONTEXT tokens of <start>, so that windows that end in its first token
    exist, and is followed by the next file.
    """

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    n_classes: int
    start: int


def tokens_of(path: Path) -> list[str]:
    """Return the tokens of a file without its comments, none if Python cannot read it."""
    try:
        with tokenize.open(path) as stream:
            text = stream.read()
        return [
            NAMES.get(token.type, token.string)
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type not in (tokenize.COMMENT, tokenize.NL)
        ]
    except (SyntaxError, UnicodeDecodeError, tokenize.TokenError):
        return []  # the library's tests hold files that are wrong on purpose


def read(n_files: int | None = None) -> Corpus:
    """Tokenize the library; n_files keeps the first so many, in a fixed mixed order."""
    root = Path(sysconfig.get_path("stdlib"))
    files = [
        path
        for path in root.rglob("*.py")
        if not {"site-packages", "dist-packages", "__pycache__"} & set(path.parts)
    ]
    # A checksum of its name says where a file belongs: the same in every run, on every machine.
    sums = {path: zlib.crc32(str(path.relative_to(root)).encode()) for path in files}
    files = sorted(files, key=lambda path: (sums[path], str(path)))[:n_files]
    parts: dict[str, list[list[str]]] = {name: [] for name in PARTS}
    for path in files:
        name = next(name for name, numbers in PARTS.items() if sums[path] % 20 in numbers)
        if found := tokens_of(path):
            parts[name].append(found)
    if not all(parts.values()):
        empty = [name for name, texts in parts.items() if not texts]
        raise ValueError(f"n_files must be larger: {n_files} leave nothing for {empty}")
    counts = Counter(token for text in parts["train"] for token in text)
    counts["<rare>"] = sum(n for n in counts.values() if n < LEAST)
    known = [token for token, n in counts.most_common() if n >= LEAST or token == "<rare>"]
    ids = {token: number for number, token in enumerate([*known, "<start>"])}
    rare, start = ids["<rare>"], ids["<start>"]

    def numbers(texts: list[list[str]]) -> np.ndarray:
        flat = [
            number
            for text in texts
            for number in [*[start] * CONTEXT, *(ids.get(token, rare) for token in text)]
        ]
        return np.array(flat, np.int32)

    arrays = {name: numbers(texts) for name, texts in parts.items()}
    return Corpus(**arrays, n_classes=len(ids), start=start)


def load(path: Path) -> Corpus:
    with np.load(path) as file:
        parts = {name: file[name] for name in PARTS}
        return Corpus(**parts, n_classes=int(file["n_classes"]), start=int(file["start"]))


def save(corpus: Corpus, path: Path) -> None:
    np.savez_compressed(path, **vars(corpus))


def main() -> None:
    corpus = read()
    save(corpus, Path(sys.argv[1]))
    sizes = ", ".join(f"{name} {len(getattr(corpus, name)):,}" for name in PARTS)
    print(f"{sizes} tokens, {corpus.n_classes:,} classes")


if __name__ == "__main__":
    main()
