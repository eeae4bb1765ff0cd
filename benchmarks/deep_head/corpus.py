"""Corpora of tokens: Python's standard library, and English words from Debian's packages.

    python -m benchmarks.deep_head.corpus python.npz
    python -m benchmarks.deep_head.corpus english.npz --english

writes token ids in three parts, whole files held out, the most frequent token having id 0. The
English words are of dictionaries, handbooks, manuals and man pages: the packages are downloaded
with apt-get (no installation, no root), and the paragraphs that are prose are kept.
"""

from __future__ import annotations

import gzip
import html
import io
import re
import subprocess
import sysconfig
import tempfile
import tokenize
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import machine

PARTS = {"train": range(17), "validation": range(17, 18), "test": range(18, 20)}  # of twenty
NAMES = {
    tokenize.NEWLINE: "<newline>",
    tokenize.INDENT: "<indent>",
    tokenize.DEDENT: "<dedent>",
    tokenize.ENDMARKER: "<end>",
}
PACKAGES = """
anarchism apache2-doc bible-kjv-text debian-faq debian-handbook debian-policy debian-reference-en
developers-reference dict-foldoc dict-gcide dict-jargon doc-debian emacs-common fortunes
freebsd-manpages gimp-help-en git-doc gnuplot-doc krb5-doc libboost1.81-doc libreoffice-help-en-us
lilypond-doc-html linux-doc-6.1 manpages manpages-dev maxima-doc miscfiles nodejs-doc octave-doc
openjdk-17-doc perl-doc postgis-doc postgresql-doc-15 python-django-doc python-scipy-doc
python-sqlalchemy-doc python3.11-doc rust-doc sqlite3-doc vim-runtime wordnet-base zsh-doc
"""
WORD = re.compile(r"[a-z]+(?:'[a-z]+)?|[0-9]+|[.,;:?!()\"-]")
TAGS = re.compile(r"<(script|style|pre|code)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)
MARKUP = re.compile(r"^[.'\\].*$|\\f.|\\-|[`*]", re.MULTILINE)  # of man pages and of rst
PROSE = re.compile(r"\b(?:the|of|a|an|to|and|is|in|for|that|it|or|be|with|as|by|on)\b")
SUFFIXES = re.compile(
    r"\.(?:html?|txt|rst|pod|xhp|info|dict\.dz|[1-9][a-z]*|dat|verse)$|/[A-Za-z_-]+$"
)
PIECE = 20_000  # words: dictionaries are files of millions, which are cut


@dataclass(frozen=True)
class Corpus:
    """Token ids of the three parts; every file begins with the token `start`."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    n_classes: int
    start: int

    @classmethod
    def of(cls, files: Iterable[tuple[str, list[str]]], least: int) -> Corpus:
        """Return the corpus of named files; tokens that are rare in its first part are one."""
        parts: dict[str, list[list[str]]] = {name: [] for name in PARTS}
        for name, tokens in files:
            # A checksum of its name says where a file belongs: the same on every machine.
            number = zlib.crc32(name.encode()) % 20
            part = next(part for part, numbers in PARTS.items() if number in numbers)
            parts[part].append(tokens)
        counts = Counter(token for tokens in parts["train"] for token in tokens)
        rare = "<rare>"
        known = {token: n for token, n in counts.items() if n >= least}
        known[rare] = sum(n for n in counts.values() if n < least)
        order = sorted(known, key=lambda token: (-known[token], token))
        ids = {token: number for number, token in enumerate([*order, "<start>"])}

        def numbers(texts: list[list[str]]) -> np.ndarray:
            start, other = ids["<start>"], ids[rare]
            flat = (
                i for text in texts for i in [start, *(ids.get(token, other) for token in text)]
            )
            return np.fromiter(flat, np.int32)

        arrays = {part: numbers(texts) for part, texts in parts.items()}
        return cls(**arrays, n_classes=len(ids), start=ids["<start>"])

    def save(self, path: Path) -> None:
        np.savez_compressed(path, **vars(self))

    @classmethod
    def load(cls, path: Path) -> Corpus:
        with np.load(path) as file:
            parts = {name: file[name] for name in PARTS}
            return cls(**parts, n_classes=int(file["n_classes"]), start=int(file["start"]))


def library() -> Iterator[tuple[str, list[str]]]:
    """Yield the tokens of the files of the standard library, without their comments."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        name = str(path.relative_to(root))
        if re.search("(site|dist)-packages|__pycache__", name):
            continue
        try:
            with tokenize.open(path) as stream:
                tokens = [
                    NAMES.get(token.type, token.string)
                    for token in tokenize.generate_tokens(io.StringIO(stream.read()).readline)
                    if token.type not in (tokenize.COMMENT, tokenize.NL)
                ]
        except (SyntaxError, UnicodeDecodeError, tokenize.TokenError):
            continue  # the library's tests hold files that are wrong on purpose
        yield name, tokens


def texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the names and the texts of the files of the packages."""
    for package in PACKAGES.split():
        subprocess.run(["apt-get", "-qq", "download", package], cwd=folder, check=True)
        (archive,) = folder.glob(f"{package}_*.deb")
        files = folder / package
        subprocess.run(["dpkg-deb", "-x", archive, files], check=True)
        archive.unlink()
        for path in sorted(files.rglob("*")):
            name = str(path.relative_to(folder))
            if path.is_symlink() or not path.is_file() or "changelog" in name.lower():
                continue
            content = path.read_bytes()
            if content[:2] == b"\x1f\x8b":
                content = gzip.decompress(content)
            if SUFFIXES.search(name.removesuffix(".gz")) and b"\0" not in content[:4096]:
                yield name, content.decode("utf-8", "replace")


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs that are prose: of a dozen words or more, with articles and the like."""
    if "</" in text:
        text = html.unescape(TAGS.sub(lambda tag: "" if tag[1] else " ", text))
    for paragraph in re.split(r"\n\s*\n|</p>", MARKUP.sub(" ", text)):
        words = paragraph.split()
        if len(words) >= 12 and 5 * len(PROSE.findall(paragraph)) >= len(words):
            yield " ".join(words).lower()


def english() -> Iterator[tuple[str, list[str]]]:
    """Yield the words of all packages; a paragraph that comes twice counts once."""
    seen: set[int] = set()
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts(Path(folder)):
            found: list[str] = []
            for paragraph in paragraphs(text):
                if (key := hash(paragraph)) not in seen:
                    seen.add(key)
                    found += WORD.findall(paragraph)
            for first in range(0, len(found), PIECE):
                yield f"{name} {first}", found[first : first + PIECE]


def main() -> None:
    parser = machine.parser(__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--english", action="store_true")
    options = parser.parse_args()
    corpus = Corpus.of(english(), 3) if options.english else Corpus.of(library(), 2)
    corpus.save(options.output)
    sizes = ", ".join(f"{part} {len(getattr(corpus, part)):,}" for part in PARTS)
    print(f"{corpus.n_classes:,} classes; tokens: {sizes}")


if __name__ == "__main__":
    main()
