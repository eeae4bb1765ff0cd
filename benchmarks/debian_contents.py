"""A million labels from Debian's Contents indices: the names of the files of a directory.

    python -m benchmarks.debian_contents FOLDER

asks apt for the indices of the configured sources (no installation, no root, nothing of the
system's own lists is touched). They name every file of every binary and source package. A row is a
file of a package: its features are the words of its directory and of the package's name, its label
is the file's name. Names of at least three files are labels, each with at most four of its files,
one of them a test row. Everything is chosen by hashes, so that the same indices give the same sets,
and the labels of a smaller set are among those of a larger one. Into FOLDER go contents_10k,
contents_100k and contents_1m as files of the XMC format (NAME_train.txt, NAME_test.txt), which
`benchmarks.datasets` finds there, and the label names (NAME.labels).
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer

from benchmarks import machine
from ltls import readers

SETS = {"contents_10k": 10_000, "contents_100k": 100_000, "contents_1m": 1_000_000}
FEWEST, MOST = 3, 4  # files of a name
MOST_TEST_ROWS = 50_000
INDICES = ("Contents-$(ARCHITECTURE)", "Contents-source")

Hashes: TypeAlias = npt.NDArray[np.uint64]


def fetch(folder: Path) -> list[Path]:
    """Download the Contents indices of apt's sources; return their files, compressed by apt."""
    (folder / "partial").mkdir(parents=True, exist_ok=True)
    options = {"Dir::State::lists": str(folder), "pkgCacheFile": "", "srcpkgCacheFile": ""}
    for number, index in enumerate(INDICES):
        target = f"Acquire::IndexTargets::deb::ltls-{number}"
        options |= {
            f"{target}::MetaKey": f"$(COMPONENT)/{index}",
            f"{target}::ShortDescription": index,
            f"{target}::Description": f"$(RELEASE)/$(COMPONENT) {index}",
            f"{target}::KeepCompressed": "true",
        }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    subprocess.run(["apt-get", "-qq", "update", *words], check=True)
    return sorted(folder.glob("*_Contents-*"))


def entries(files: Iterable[Path]) -> Iterator[tuple[bytes, bytes]]:
    """Yield every path of the indices with a package that has it."""
    for file in files:
        command = ["/usr/lib/apt/apt-helper", "cat-file", str(file)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for line in process.stdout:
                path, packages = line.rstrip().rsplit(None, 1)
                for package in packages.split(b","):
                    # Those of binary packages begin with their section.
                    yield path.rstrip(), package.rpartition(b"/")[2]


def number_of(text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


def hashes(files: Iterable[Path]) -> tuple[Hashes, Hashes]:
    """Return a hash of the name and a hash of the row of every entry."""
    numbers = (
        (number_of(path.rpartition(b"/")[2]), number_of(path + b" " + package))
        for path, package in entries(files)
    )
    found = np.fromiter(numbers, np.dtype((np.uint64, 2)))
    return found[:, 0].copy(), found[:, 1].copy()


def chosen_rows(names: Hashes, rows: Hashes, n_labels: int) -> tuple[Hashes, npt.NDArray[np.int64]]:
    """Choose the labels with the smallest hashes, and the rows of each with the smallest hashes.

    Returns the row hashes, sorted, and for each its label times `MOST` plus its place among them.
    """
    rows, first = np.unique(rows, return_index=True)  # releases repeat entries
    names = names[first]
    order = np.lexsort((rows, names))
    names, rows = names[order], rows[order]
    starts = np.flatnonzero(np.diff(names, prepend=~names[:1]))
    counts = np.diff(np.append(starts, len(names)))
    labels = np.flatnonzero(counts >= FEWEST)[:n_labels]
    if len(labels) < n_labels:
        raise SystemExit(f"the indices have {len(labels):,} names of {FEWEST} files or more")
    taken = np.minimum(counts[labels], MOST)
    label = np.repeat(np.arange(n_labels), taken)
    place = np.arange(len(label)) - np.repeat(np.cumsum(taken) - taken, taken)
    kept = rows[starts[labels][label] + place]
    order = np.argsort(kept)
    return kept[order], (label * MOST + place)[order]


def texts(
    files: Iterable[Path], kept: Hashes, label_and_place: npt.NDArray[np.int64], n_labels: int
) -> tuple[list[str], list[str]]:
    """Return the words of every chosen row, by label and place, and the names of the labels."""
    words, names = [""] * (n_labels * MOST), [""] * n_labels
    wanted = dict(zip(kept.tolist(), label_and_place.tolist(), strict=True))
    for path, package in entries(files):
        at = wanted.get(number_of(path + b" " + package))
        if at is not None:
            folder, _, name = path.decode("utf-8", "replace").rpartition("/")
            words[at] = f"{folder} {package.decode()}"
            names[at // MOST] = name
    return words, names


def write(folder: Path, name: str, words: list[str], names: list[str]) -> None:
    """Write a set of the first labels: the first row of a label is for testing."""
    n_labels = len(names)
    test_labels = np.arange(0, n_labels, max(1, n_labels // MOST_TEST_ROWS))
    places = np.arange(n_labels * MOST)
    train = np.array([at for at in places if at % MOST and words[at]])
    train = np.random.default_rng(0).permutation(train)
    vectorizer = TfidfVectorizer(token_pattern="[a-z0-9]+", min_df=2, dtype=np.float32)
    X = vectorizer.fit_transform([words[at] for at in train])
    X_test = vectorizer.transform([words[at] for at in test_labels * MOST])
    for part, features, labels in (
        ("train", X, train // MOST),
        ("test", X_test, test_labels),
    ):
        ones = np.ones(len(labels), np.float32)
        Y = sp.csr_matrix((ones, (np.arange(len(labels)), labels)), (len(labels), n_labels))
        readers.write(folder / f"{name}_{part}.txt", features, Y, "xmc")
    (folder / f"{name}.labels").write_text("\n".join(names) + "\n", "utf-8")
    machine.say(
        f"{name}: {n_labels:,} labels, {X.shape[0]:,} training rows, {X_test.shape[0]:,} test rows,"
        f" {X.shape[1]:,} features, {X.nnz / X.shape[0]:.1f} per row"
    )


def main() -> None:
    parser = machine.parser(__doc__)
    parser.add_argument("folder", type=Path, help="where the sets are written")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as lists:
        files = fetch(Path(lists))
        n_labels = max(SETS.values())
        chosen = chosen_rows(*hashes(files), n_labels)
        machine.say(f"{len(chosen[0]):,} rows chosen")
        words, names = texts(files, *chosen, n_labels)
    for name, size in sorted(SETS.items(), key=lambda item: item[1]):
        write(folder, name, words[: size * MOST], names[:size])


if __name__ == "__main__":
    main()
