"""Problems of next-item recommendation: histories, the items that follow, and vectors of all items.

Two sets, each written to a file that `benchmarks.deep_head.recommend` trains on, with or without
the compiled engine:

    LTLS_DATA=FOLDER python -m benchmarks.deep_head.next_items amazon.npz
    python -m benchmarks.deep_head.next_items debian.npz --packages Packages

*amazon* is amazon_video_next: the last ten items of a user, then the next one. Item vectors are
those of a factorization of which items occur together in histories. *debian* is made of a Packages
index of Debian, such as those in /var/lib/apt/lists: of the packages that a package depends on,
recommends or suggests, one is to be found from up to ten others; a tenth of the packages is held
out. Item vectors are those of the items' own descriptions, names, sections and tags.

A twentieth of the items is cold: no training row has one as its target, and on debian no training
history has one either. The file has the paths of the warm items by `TableCodebook.from_embeddings`
and those of the cold ones by `assign_embeddings`.
"""

from __future__ import annotations

import argparse
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.utils.extmath import randomized_svd

from benchmarks import datasets
from ltls import TableCodebook

SIZE = 64  # of the item vectors
WIDTH, N_TRELLISES = 32, 3
LONGEST = 10  # of the histories
COLD = 20  # one item in so many


@dataclass(frozen=True)
class Rows:
    """Items of histories with weights, both padded with 0, and the items that follow."""

    items: np.ndarray
    weights: np.ndarray
    y: np.ndarray

    def at(self, rows: Any) -> Rows:
        """Return some of the rows."""
        return Rows(self.items[rows], self.weights[rows], self.y[rows])


@dataclass(frozen=True)
class Problem:
    """Histories of inputs, labels to follow, and a vector of each."""

    train: Rows
    test: Rows
    vectors: np.ndarray  # of every label
    input_vectors: np.ndarray  # of every item of a history
    is_cold: np.ndarray  # per label


def features_of_labels(X: sp.csr_matrix, y: np.ndarray, n_labels: int) -> np.ndarray:
    """Return the column of every label: a label is a column of its user's next row; −1 if never."""
    votes: dict[int, Counter[int]] = {}
    for row in range(X.shape[0] - 1):
        this, following = (set(X.indices[X.indptr[i] : X.indptr[i + 1]]) for i in (row, row + 1))
        new = following - this
        if len(new) == 1 and len(this - following) <= 1:
            votes.setdefault(int(y[row]), Counter())[new.pop()] += 1
    columns = np.full(n_labels, -1)
    for label, counted in votes.items():
        columns[label] = counted.most_common(1)[0][0]
    return columns


def cooccurrence_vectors(X: sp.csr_matrix) -> np.ndarray:
    """Return vectors of items that occur in the same histories: SVD of positive PMI."""
    occurs = (X > 0).astype(np.float64)
    together = sp.coo_matrix(occurs.T @ occurs)
    totals = np.asarray(together.sum(1)).ravel() + 1
    pmi = np.log(together.data * totals.sum() / (totals[together.row] * totals[together.col]))
    matrix = sp.csr_matrix((pmi.clip(0), (together.row, together.col)), together.shape)
    return reduced(matrix)


def reduced(matrix: sp.csr_matrix, size: int = SIZE) -> np.ndarray:
    """Return a short vector for every row."""
    left, values, _ = randomized_svd(matrix, size, random_state=0)
    vectors: np.ndarray = left * np.sqrt(values)
    return vectors


def rows_of(X: sp.csr_matrix, y: np.ndarray) -> Rows:
    items = np.zeros((X.shape[0], LONGEST), np.int64)
    weights = np.zeros((X.shape[0], LONGEST), np.float32)
    lengths = np.minimum(np.diff(X.indptr), LONGEST)
    for place in range(LONGEST):
        has = lengths > place
        items[has, place] = X.indices[X.indptr[:-1][has] + place]
        weights[has, place] = X.data[X.indptr[:-1][has] + place]
    return Rows(items, weights, y)


def cold_items(n: int) -> np.ndarray:
    return np.random.RandomState(0).randint(COLD, size=n) == 0


def amazon() -> Problem:
    train, test = datasets.train_and_test("amazon_video_next")
    X, y = train.X.tocsr(), np.asarray(train.y)
    y_test = np.asarray(test.y)
    n_labels = int(max(y.max(), y_test.max())) + 1
    columns = features_of_labels(X, y, n_labels)
    inputs = cooccurrence_vectors(X)
    vectors = np.where(columns[:, None] >= 0, inputs[columns], inputs.mean(0))
    is_cold = cold_items(n_labels)
    return Problem(
        rows_of(X, y).at(~is_cold[y]), rows_of(test.X.tocsr(), y_test), vectors, inputs, is_cold
    )


def packages(path: Path) -> Iterator[dict[str, str]]:
    """Yield the fields of every package of an index; a continued field is one line."""
    for entry in path.read_text().split("\n\n"):
        lines = re.sub(r"\n\s+", " ", entry).splitlines()
        fields = dict(line.split(": ", 1) for line in lines if ": " in line)
        if "Package" in fields:
            yield fields


def debian(path: Path, size: int = SIZE) -> Problem:
    every = {fields["Package"]: fields for fields in packages(path)}
    wanted: dict[str, list[str]] = {}
    for name, fields in every.items():
        words = ", ".join(fields.get(key, "") for key in ("Depends", "Recommends", "Suggests"))
        first = (part.split("|")[0].split() for part in words.split(","))
        wanted[name] = list(dict.fromkeys(word[0].split(":")[0] for word in first if word))
    counts = Counter(item for items in wanted.values() for item in items)
    names = [item for item, n in counts.items() if n >= 2]
    number = {item: i for i, item in enumerate(names)}
    is_cold = cold_items(len(names))
    rng = np.random.RandomState(0)
    rows: dict[str, list[tuple[list[int], int]]] = {"train": [], "test": []}
    for name, items in wanted.items():
        known = [number[item] for item in items if item in number]
        part = "test" if zlib.crc32(name.encode()) % 10 == 0 else "train"
        if part == "train":
            known = [item for item in known if not is_cold[item]]
        for item in known if len(known) > 1 else ():
            others = [other for other in known if other != item]
            rows[part].append((rng.permutation(others)[:LONGEST].tolist(), item))
    texts = [text_of(item, every.get(item, {})) for item in names]
    vectors = reduced(TfidfVectorizer(sublinear_tf=True, min_df=2).fit_transform(texts), size)
    train, test = (padded(part) for part in rows.values())
    return Problem(train, test, vectors, vectors, is_cold)


def text_of(name: str, fields: dict[str, str]) -> str:
    words = [fields.get(key, "") for key in ("Description", "Section", "Tag", "Source")]
    return " ".join([name.replace("-", " "), *words])


def padded(rows: list[tuple[list[int], int]]) -> Rows:
    items = np.zeros((len(rows), LONGEST), np.int64)
    weights = np.zeros((len(rows), LONGEST), np.float32)
    for i, (history, _) in enumerate(rows):
        items[i, : len(history)] = history
        weights[i, : len(history)] = 1 / np.sqrt(len(history))
    return Rows(items, weights, np.array([item for _, item in rows]))


def by_frequency(problem: Problem) -> tuple[Problem, int]:
    """Renumber labels by decreasing frequency, the cold ones last; return how many are not."""
    counts = np.bincount(problem.train.y, minlength=len(problem.vectors))
    order = np.lexsort((-counts, problem.is_cold))
    new = np.argsort(order)
    train, test = (
        Rows(part.items, part.weights, new[part.y]) for part in (problem.train, problem.test)
    )
    renumbered = Problem(
        train, test, problem.vectors[order], problem.input_vectors, problem.is_cold[order]
    )
    return renumbered, int((~problem.is_cold).sum())


def paths_of(vectors: np.ndarray, n_warm: int, n_trellises: int) -> tuple[np.ndarray, int]:
    """Return the paths of all items, (n_items, n_trellises), and the number of paths."""
    made = TableCodebook.from_embeddings(vectors[:n_warm], WIDTH, n_trellises)
    books = made if isinstance(made, list) else [made]
    if n_warm < len(vectors):
        for book in books:
            book.assign_embeddings(vectors[n_warm:])
    return np.stack([book.paths for book in books], 1), books[0].n_paths


def write(path: Path, problem: Problem, n_warm: int) -> None:
    """Write a problem and its codebooks, all arrays in the smallest types."""
    arrays: dict[str, Any] = {"n_warm": n_warm}
    for name, rows in (("train", problem.train), ("test", problem.test)):
        arrays[f"{name}_items"] = rows.items.astype(np.int32)
        arrays[f"{name}_weights"] = rows.weights.astype(np.float16)
        arrays[f"{name}_y"] = rows.y.astype(np.int32)
    n_inputs = len(problem.input_vectors)
    for name, vectors, warm, n in (
        ("one", problem.vectors, n_warm, 1),
        ("three", problem.vectors, n_warm, N_TRELLISES),
        ("input", problem.input_vectors, n_inputs, N_TRELLISES),
    ):
        paths, arrays[f"{name}_n_paths"] = paths_of(vectors, warm, n)
        arrays[f"{name}_paths"] = paths.astype(np.int32)
    np.savez_compressed(path, **arrays)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--packages", type=Path, help="an index of Debian's packages")
    options = parser.parse_args()
    problem, n_warm = by_frequency(debian(options.packages) if options.packages else amazon())
    write(options.output, problem, n_warm)
    print(
        f"{len(problem.vectors):,} items, {n_warm:,} of them not cold; "
        f"{len(problem.train.y):,} rows to train, {len(problem.test.y):,} to test"
    )


if __name__ == "__main__":
    main()
