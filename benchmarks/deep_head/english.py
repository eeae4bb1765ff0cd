"""A corpus of English words from Debian's packages: dictionaries, handbooks, manuals, man pages.

    python -m benchmarks.deep_head.english english.npz

downloads the packages with apt-get (no installation, no root), keeps the lines that are prose, and
writes token ids in the format of `benchmarks.deep_head.next_token --write-corpus`: three parts,
whole files held out, the most frequent word having id 0.
"""

from __future__ import annotations

import argparse
import gzip
import html
import re
import subprocess
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.deep_head.next_token import CONTEXT, PARTS, Corpus, save_corpus

PACKAGES = [
    "anarchism", "apache2-doc", "bible-kjv-text", "debian-faq", "debian-handbook",
    "debian-policy", "debian-reference-en", "developers-reference", "dict-foldoc", "dict-gcide",
    "dict-jargon", "doc-debian", "emacs-common", "fortunes", "freebsd-manpages", "gimp-help-en",
    "git-doc", "gnuplot-doc", "krb5-doc", "libboost1.81-doc", "libreoffice-help-en-us",
    "lilypond-doc-html", "linux-doc-6.1", "manpages", "manpages-dev", "maxima-doc", "miscfiles",
    "nodejs-doc", "octave-doc", "openjdk-17-doc", "perl-doc", "postgis-doc", "postgresql-doc-15",
    "python-django-doc", "python-scipy-doc", "python-sqlalchemy-doc", "python3.11-doc",
    "rust-doc", "sqlite3-doc", "vim-runtime", "wordnet-base", "zsh-doc",
]  # fmt: skip
LEAST = 3  # how often the files to learn from must have a word
WORD = re.compile(r"[a-z]+(?:'[a-z]+)?|[0-9]+|[.,;:?!()\"-]")
TAGS = re.compile(r"<(script|style|pre|code)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)
MARKUP = re.compile(r"^[.'\\].*$|\\f.|\\-|[`*]", re.MULTILINE)  # of man pages and of rst
PROSE = re.compile(r"\b(?:the|of|a|an|to|and|is|in|for|that|it|or|be|with|as|by|on)\b")
SUFFIXES = re.compile(
    r"\.(?:html?|txt|rst|pod|xhp|info|dict\.dz|[1-9][a-z]*|dat|verse)$|/[A-Za-z_-]+$"
)


def texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the names and the texts of the files of the packages."""
    for package in PACKAGES:
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


def read_corpus() -> Corpus:
    """Collect the words of all packages; a paragraph that comes twice counts once."""
    parts: dict[str, list[list[str]]] = {name: [] for name in PARTS}
    seen: set[int] = set()
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts(Path(folder)):
            found: list[str] = []
            for paragraph in paragraphs(text):
                if (key := hash(paragraph)) not in seen:
                    seen.add(key)
                    found += WORD.findall(paragraph)
            # A checksum of a file's name says where it belongs, as in `next_token`. Dictionaries
            # are files of millions of words, which are cut into pieces.
            for first in range(0, len(found), 20_000):
                number = zlib.crc32(f"{name} {first}".encode()) % 20
                part = next(part for part, numbers in PARTS.items() if number in numbers)
                parts[part].append(found[first : first + 20_000])
    counts = Counter(word for text in parts["train"] for word in text)
    known = [word for word, n in counts.items() if n >= LEAST]
    counts["<rare>"] = sum(n for n in counts.values() if n < LEAST)
    order = sorted([*known, "<rare>"], key=lambda word: (-counts[word], word))
    ids = {word: number for number, word in enumerate([*order, "<start>"])}
    rare, start = ids["<rare>"], ids["<start>"]
    arrays = {
        part: np.array(
            [
                number
                for text in pieces
                for number in [*[start] * CONTEXT, *(ids.get(word, rare) for word in text)]
            ],
            np.int32,
        )
        for part, pieces in parts.items()
    }
    return Corpus(**arrays, n_classes=len(ids), start=start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    corpus = read_corpus()
    save_corpus(corpus, options.output)
    sizes = ", ".join(f"{part} {len(getattr(corpus, part)):,}" for part in PARTS)
    print(f"{corpus.n_classes:,} classes; words: {sizes}")


if __name__ == "__main__":
    main()
