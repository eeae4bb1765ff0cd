"""Data sets from Debian's package lists and from WordNet, beside those of the shared folder.

    python -m benchmarks.debian_packages FOLDER

reads the package lists that apt has (`apt-get update` fetches them) and downloads the package
wordnet-base, without installing it. Into FOLDER go files of the XMC format (NAME_train.txt,
NAME_test.txt), which `benchmarks.datasets` finds there:

- maintainers: words of a package's name and summary; its maintainer.
- dependencies: the same words; the packages that it depends on, several labels per row.
- sources: character n-grams of the summary; the source package, if it has at least four binaries.
- lemmas: the words of a gloss; the words that have this meaning and at least one other.

A fifth of the rows, chosen by hashes, are test rows; labels without a training row are left out.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import MultiLabelBinarizer

from benchmarks import machine
from ltls import readers

Rows: TypeAlias = Iterator[tuple[str, list[str]]]  # texts with their labels
LISTS = Path("/var/lib/apt/lists")


def packages() -> list[dict[str, str]]:
    """Return the fields of every package that apt knows, one version of each."""
    found = {}
    for file in sorted(LISTS.glob("*_Packages*")):
        command = ["/usr/lib/apt/apt-helper", "cat-file", str(file)]
        listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout
        for paragraph in listed.split("\n\n"):
            fields = dict(re.findall(r"^([\w-]+): (.*)$", paragraph, re.MULTILINE))
            if "Description" in fields:
                found[fields["Package"]] = fields
    if not found:
        raise SystemExit(f"no package lists in {LISTS}: run `apt-get update`")
    return [found[name] for name in sorted(found)]


def summary(package: dict[str, str]) -> str:
    return f"{package['Package']} {package['Description']}"


def maintainers() -> Rows:
    for package in packages():
        yield summary(package), [package["Maintainer"]]


def dependencies() -> Rows:
    for package in packages():
        needed = re.findall(r"(?:^|, )([a-z0-9][a-z0-9+.-]+)", package.get("Depends", ""))
        yield summary(package), sorted(set(needed))


def sources() -> Rows:
    of_source = [(package.get("Source", "").split(" ")[0], package) for package in packages()]
    n_binaries = Counter(source for source, _ in of_source)
    for source, package in of_source:
        if source and n_binaries[source] >= 4:
            yield package["Description"], [source]


def lemmas() -> Rows:
    """Yield the glosses of WordNet with their ambiguous words."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["apt-get", "-qq", "download", "wordnet-base"]
        subprocess.run(command, cwd=folder, check=True, stderr=subprocess.DEVNULL)
        [archive] = Path(folder).glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", str(archive), folder], check=True)
        found = []
        for file in sorted(Path(folder).glob("usr/share/wordnet/data.*")):
            for line in file.read_text("utf-8").splitlines():
                if not line.startswith("  "):  # the licence
                    fields, _, gloss = line.partition(" | ")
                    words = fields.split()
                    named = words[4 : 4 + 2 * int(words[3], 16) : 2]
                    # Examples, which have the word in them, follow the definition.
                    found.append((gloss.partition('; "')[0], [word.lower() for word in named]))
    n_meanings = Counter(word for _, words in found for word in words)
    for gloss, words in found:
        yield gloss, sorted({word for word in words if n_meanings[word] > 1})


SETS: dict[str, tuple[Callable[[], Rows], dict[str, Any]]] = {
    "maintainers": (maintainers, {"token_pattern": "[a-z0-9]+"}),
    "dependencies": (dependencies, {"token_pattern": "[a-z0-9]+"}),
    "sources": (sources, {"analyzer": "char_wb", "ngram_range": (2, 4)}),
    "lemmas": (lemmas, {"token_pattern": "[a-z0-9]+"}),
}


def is_test_row(text: str) -> bool:
    return blake2b(text.encode()).digest()[0] % 5 == 0


def write(folder: Path, name: str) -> None:
    """Write a data set."""
    rows, words = SETS[name]
    parts: dict[bool, list[tuple[str, list[str]]]] = {False: [], True: []}
    for text, labels in rows():
        parts[is_test_row(text)].append((text, labels))
    known = MultiLabelBinarizer(sparse_output=True)
    known.fit([labels for _, labels in parts[False]])
    names = set(known.classes_)
    vectorizer = TfidfVectorizer(min_df=2, dtype=np.float32, sublinear_tf=True, **words)
    vectorizer.fit([text for text, _ in parts[False]])
    for part, of_part in (("train", parts[False]), ("test", parts[True])):
        kept = [(text, [label for label in labels if label in names]) for text, labels in of_part]
        kept = [(text, labels) for text, labels in kept if labels]
        texts, labels = zip(*kept, strict=True)
        X, Y = vectorizer.transform(texts), known.transform(labels)
        readers.write(folder / f"{name}_{part}.txt", X, Y.astype(np.float32).tocsr(), "xmc")
        machine.say(f"{name}, {part}: {X.shape} features, {Y.shape} labels, {Y.nnz:,} of rows")


def main() -> None:
    parser = machine.parser(__doc__)
    parser.add_argument("folder", type=Path, help="where the sets are written")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name in SETS:
        write(folder, name)


if __name__ == "__main__":
    main()
