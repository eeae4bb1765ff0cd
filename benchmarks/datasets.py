"""The data sets of the benchmarks: found in a folder, read, and prepared for other processes."""

from __future__ import annotations

import csv
import functools
import lzma
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks import machine
from ltls import readers

SINGLE_LABEL = ("banking77", "icd10cm", "debsrc", "amazon_video_next", "debfiles")
SINGLE_LABEL += ("maintainers", "sources")
ONE_LABEL = (*SINGLE_LABEL, "wordnet_hyper")  # which has 1.03 labels per row
MULTI_LABEL = ("bibtex", "delicious", "rcv1sub1", "stackex_cs", "makupalat", "debtags", "yso_en")
MULTI_LABEL += ("dependencies", "lemmas", "wordnet_hyper")
TEXTS = {"banking77": "csv", "yso_en": "tsv"}
PARTS = ("X", "Y", "X_test", "Y_test")


def find(folder: Path, name: str) -> list[Path] | None:
    """Find the files with a data set's training and test rows, or None.

    Both lie in the folder or one folder below. A file is called NAME, one of ._-, then train or tr
    (test or te), perhaps .txt or .svm, perhaps .gz, .xz or .bz2. In NAME, case and ._- do not
    matter. Of several, the first is taken.
    """

    def plain(word: str) -> str:
        return re.sub("[._-]", "", word).lower()

    paths = sorted(path for path in (*folder.glob("*"), *folder.glob("*/*")) if path.is_file())
    found = []
    for part in ("train|tr", "test|te"):
        form = re.compile(rf"(.+)[._-]({part})(\.txt|\.svm)?(\.gz|\.xz|\.bz2)?", re.IGNORECASE)
        matches = ((path, form.fullmatch(path.name)) for path in paths)
        found += [path for path, match in matches if match and plain(match[1]) == plain(name)][:1]
    return found if len(found) == 2 else None


@functools.lru_cache(1)
def train_and_test(name: str) -> tuple[readers.Dataset, readers.Dataset]:
    """Read a data set of the folder that LTLS_DATA names, or end with what is missing."""
    files = find(machine.data_folder(), name)
    if files is None:
        sys.exit(f"{name} is not in the folder that LTLS_DATA names")
    train = readers.read(files[0])
    test = readers.read(files[1], zero_based=train.zero_based)
    test.X.resize(test.X.shape[0], train.X.shape[1])  # features that no training row has are idle
    return train, test


def problem(name: str) -> tuple[Any, Any, Any, Any]:
    """Return X, y, X_test and y_test of a data set; y has a label per row, or is an indicator."""
    train, test = train_and_test(name)
    y, y_test = ((part.y if train.single_label else part.Y) for part in (train, test))
    return train.X, y, test.X, y_test


def texts(name: str, part: str) -> tuple[list[str], list[Any]]:
    """Return texts of "banking77" and their labels, or of "yso_en" and lists of labels."""
    path = machine.data_folder() / f"{name}_text_{part}.{TEXTS[name]}.xz"
    with lzma.open(path, "rt", encoding="utf-8", newline="") as file:
        if TEXTS[name] == "csv":
            rows = [(row["text"], row["category"]) for row in csv.DictReader(file)]
            return [text for text, _ in rows], [label for _, label in rows]
        cells = [line.rstrip("\n").split("\t") for line in file]
        return [text for text, _ in cells], [labels.split() for _, labels in cells]


def load(files: list[Path]) -> list[sp.csr_matrix]:
    """Read X and Y of the training rows and of the test rows, with the same columns in both."""
    train = readers.read(files[0])
    parts = [train, readers.read(files[1], zero_based=train.zero_based)]
    names = [np.arange(p.n_labels) if p.classes is None else p.classes for p in parts]
    labels = np.union1d(*names)
    result = []
    for part, own in zip(parts, names, strict=True):
        part.X.resize(part.X.shape[0], max(p.X.shape[1] for p in parts))
        columns = np.searchsorted(labels, own)[part.Y.indices]
        shape = (part.Y.shape[0], labels.size)
        result += [part.X, sp.csr_matrix((part.Y.data, columns, part.Y.indptr), shape=shape)]
    return result


def prepare(source: Path, name: str, target: Path) -> Path | None:
    """Write a data set's matrices, and its rows as text, into a folder below `target`.

    Returns the folder, which is reused where it is there, or None where the set is not.
    """
    folder = target / name
    if not all((folder / f"{part}.npz").exists() for part in PARTS):
        files = find(source, name)
        if files is None:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        X, Y, X_test, Y_test = matrices = load(files)
        readers.write(folder / "train.txt", X, Y, "xmc")
        readers.write(folder / "test.txt", X_test, Y_test, "xmc")
        for part, matrix in zip(PARTS, matrices, strict=True):
            unfinished = folder / f"{part}.part.npz"
            sp.save_npz(unfinished, matrix, compressed=False)
            unfinished.replace(folder / f"{part}.npz")
    return folder


def labels(folder: Path) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Return the labels of the training and of the test rows of a prepared set."""
    return sp.load_npz(folder / "Y.npz"), sp.load_npz(folder / "Y_test.npz")


def describe(folder: Path) -> dict[str, float]:
    """Count what a prepared set holds."""
    Y, Y_test = labels(folder)
    per_label = np.bincount(Y.indices, minlength=Y.shape[1])
    with np.load(folder / "X.npz") as X:  # its header is enough
        n_features = int(X["shape"][1])
    return {
        "rows": Y.shape[0],
        "test_rows": Y_test.shape[0],
        "features": n_features,
        "labels": Y.shape[1],
        "labels_per_row": Y.nnz / Y.shape[0],
        "labels_with_one_row": int((per_label == 1).sum()),
    }
