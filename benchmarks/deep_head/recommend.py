"""Recommendation of the next item: semantic IDs beside other codebooks and other output layers.

The data set is amazon_video_next: the last ten items of a user, then the next one. Item vectors are
those of a factorization of which items occur together in histories. A twentieth of the items is
cold: they occur in histories, but no training row has one as its target. Recall and nDCG at 10 are
those of all items on test rows with other targets; *cold* is the recall at 10 of test rows with
cold targets, among all items and among the cold ones.

    LTLS_DATA=FOLDER python -m benchmarks.deep_head.recommend

Writes deep_head_recommend.json after every model; about ten minutes on two idle cores.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils.extmath import randomized_svd
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from benchmarks import datasets, machine, tables
from benchmarks.deep_head.heads import Full, Head, Trellis, schedule
from ltls import TableCodebook
from ltls.torch import TrellisEmbedding

NAME = "deep_head_recommend"
K = 10
SIZE, BATCH, EPOCHS, RATE = 64, 1024, 3, 3e-3
N_NEGATIVES = 1024  # of sampled softmax
COLD = 20  # one item in so many


@dataclass(frozen=True)
class Rows:
    """Histories as item ids with weights, padded with weight 0, and the items that follow."""

    items: Tensor
    weights: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def at(self, rows: Tensor) -> Rows:
        """Return some of the rows."""
        return Rows(self.items[rows], self.weights[rows], self.y[rows])


@dataclass(frozen=True)
class Problem:
    """Labels are numbered by decreasing frequency, the cold ones last."""

    train: Rows
    test: Rows
    test_cold: Rows
    vectors: np.ndarray  # of every label
    input_vectors: np.ndarray  # of every item of a history
    n_warm: int


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


def item_vectors(X: sp.csr_matrix, n_dimensions: int = 64) -> np.ndarray:
    """Return vectors of items that occur in the same histories: SVD of positive PMI."""
    occurs = (X > 0).astype(np.float64)
    together = sp.coo_matrix(occurs.T @ occurs)
    totals = np.asarray(together.sum(1)).ravel() + 1
    pmi = np.log(together.data * totals.sum() / (totals[together.row] * totals[together.col]))
    matrix = sp.csr_matrix((pmi.clip(0), (together.row, together.col)), together.shape)
    left, values, _ = randomized_svd(matrix, n_dimensions, random_state=0)
    vectors: np.ndarray = left * np.sqrt(values)
    return vectors


def rows_of(X: sp.csr_matrix, y: np.ndarray, longest: int = 10) -> Rows:
    items = np.zeros((X.shape[0], longest), np.int64)
    weights = np.zeros((X.shape[0], longest), np.float32)
    lengths = np.minimum(np.diff(X.indptr), longest)
    for place in range(longest):
        has = lengths > place
        items[has, place] = X.indices[X.indptr[:-1][has] + place]
        weights[has, place] = X.data[X.indptr[:-1][has] + place]
    return Rows(torch.from_numpy(items), torch.from_numpy(weights), torch.from_numpy(y))


def read_problem(most_rows: int | None) -> Problem:
    train, test = datasets.train_and_test("amazon_video_next")
    X, y = train.X.tocsr()[:most_rows], np.asarray(train.y)[:most_rows]
    X_test, y_test = test.X.tocsr()[:most_rows], np.asarray(test.y)[:most_rows]
    n_labels = int(max(y.max(), y_test.max())) + 1
    columns = features_of_labels(X, y, n_labels)
    inputs = item_vectors(X)
    vectors = np.where(columns[:, None] >= 0, inputs[columns], inputs.mean(0))
    is_cold = np.random.RandomState(0).randint(COLD, size=n_labels) == 0
    counts = np.bincount(y, minlength=n_labels)
    counts[is_cold] = 0  # nobody knows how often they will be bought
    order = np.lexsort((-counts, is_cold))
    new = np.argsort(order)  # number of every old label
    n_warm = int((~is_cold).sum())
    kept = ~is_cold[y]
    of_cold = is_cold[y_test]
    return Problem(
        rows_of(X[kept], new[y[kept]]),
        rows_of(X_test[~of_cold], new[y_test[~of_cold]]),
        rows_of(X_test[of_cold], new[y_test[of_cold]]),
        vectors[order],
        inputs,
        n_warm,
    )


class Sampled(Full):
    """Softmax over the target and some labels drawn by frequency, corrected for being drawn."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        n = self.linear.out_features
        drawn = torch.rand(N_NEGATIVES, device=x.device) * np.log(n + 1)
        drawn = (drawn.exp() - 1).long().clamp(max=n - 1)

        def rate(labels: Tensor) -> Tensor:
            """Return the logarithm of how often labels are drawn."""
            return (N_NEGATIVES * ((labels + 2) / (labels + 1)).log() / np.log(n + 1)).log()

        weight, bias = self.linear.weight, self.linear.bias
        positive = (x * weight[y]).sum(1) + bias[y] - rate(y)
        negative = x @ weight[drawn].T + bias[drawn] - rate(drawn)
        negative = negative.masked_fill(drawn == y[:, None], -1e9)
        logits = torch.cat([positive[:, None], negative], 1)
        return F.cross_entropy(logits, torch.zeros_like(y))


class Model(nn.Module):
    """A history in, a head's scores out."""

    def __init__(self, table: nn.Module, head: Head) -> None:
        super().__init__()
        self.table, self.head = table, head
        self.hidden = nn.Sequential(nn.Linear(SIZE, SIZE), nn.ReLU(), nn.Linear(SIZE, SIZE))

    def forward(self, rows: Rows) -> Tensor:
        """Return the hidden vectors."""
        summed = (self.table(rows.items) * rows.weights[..., None]).sum(1)
        return self.hidden(summed)


def best(model: Model, rows: Rows, among: Tensor | None) -> Tensor:
    hidden = model(rows)
    if isinstance(model.head, Trellis):
        return model.head.softmax.topk(model.head.narrow(hidden), K, among=among)[0]
    scores = model.head.linear(hidden)
    if among is None:
        return scores.topk(K).indices
    return among[scores[:, among].topk(min(K, len(among))).indices]


@torch.no_grad()
def ranked(model: Model, rows: Rows, among: Tensor | None = None) -> tuple[float, float]:
    """Return recall and nDCG at K."""
    recall = gain = 0.0
    for part in torch.arange(len(rows)).split(2048):
        some = rows.at(part)
        found = best(model, some, among) == some.y[:, None]
        recall += float(found.sum())
        discount = torch.log2(torch.arange(2, found.shape[1] + 2, device=found.device))
        gain += float((found / discount).sum())
    return recall / len(rows), gain / len(rows)


def train(model: Model, problem: Problem, epochs: int) -> float:
    """Train, and return the seconds that it took."""
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    steps = max(1, epochs * (len(problem.train) // BATCH))
    start, step = time.perf_counter(), 0
    while step < steps:
        for rows in torch.randperm(len(problem.train)).split(BATCH):
            for group in optimizer.param_groups:
                group["lr"] = RATE * schedule(min(step, steps), steps)
            some = problem.train.at(rows)
            optimizer.zero_grad()
            model.head.loss(model(some), some.y).backward()
            optimizer.step()
            step += 1
    return time.perf_counter() - start


def cases(problem: Problem) -> Iterator[dict[str, Any]]:
    """Name the models: output layer, codebook, input table."""
    n, n_warm = len(problem.vectors), problem.n_warm
    n_inputs = len(problem.input_vectors)

    def table() -> nn.Module:
        return nn.Embedding(n_inputs, SIZE)

    yield {"head": "full softmax", "make": lambda: Model(table(), Full(SIZE, n))}
    yield {"head": "sampled softmax", "make": lambda: Model(table(), Sampled(SIZE, n))}
    for name in ("random", "frequency"):
        yield {
            "head": f"trellis, {name} codebook",
            "make": lambda name=name: Model(table(), Trellis(SIZE, n, 32, assignment=name)),
        }
    for words, n_trellises, small in (
        ("trellis, semantic IDs", 1, False),
        ("three trellises, semantic IDs", 3, False),
        ("three trellises, semantic IDs, `TrellisEmbedding`", 3, True),
    ):
        books = TableCodebook.from_embeddings(problem.vectors[:n_warm], 32, n_trellises)
        books = books if isinstance(books, list) else [books]

        def make(books: list[TableCodebook] = books, small: bool = small) -> Model:
            options = {"n_trellises": len(books), "assignment": books}
            given = table()
            if small:
                inputs = TableCodebook.from_embeddings(problem.input_vectors, 32, 3)
                given = TrellisEmbedding(n_inputs, SIZE, 32, 3, inputs)
            return Model(given, Trellis(SIZE, n_warm, 32, **options))

        def add(model: Model, books: list[TableCodebook] = books) -> None:
            new = [book.assign_embeddings(problem.vectors[n_warm:]) for book in books]
            paths = [book.path_of(labels) for book, labels in zip(books, new, strict=True)]
            model.head.softmax.add_classes(np.stack(paths, 1))

        yield {"head": words, "make": make, "add": add}


def run(case: dict[str, Any], problem: Problem, epochs: int) -> dict[str, Any]:
    """Train and test one model."""
    torch.manual_seed(0)
    model = case["make"]()
    seconds = train(model, problem, epochs)
    if "add" in case:
        case["add"](model)
    recall, gain = ranked(model, problem.test)
    cold = torch.arange(problem.n_warm, len(problem.vectors))
    return {
        "parameters": model.head.size,
        "input parameters": sum(p.numel() for p in model.table.parameters()),
        "recall": recall,
        "nDCG": gain,
        "cold": ranked(model, problem.test_cold)[0],
        "cold among cold": ranked(model, problem.test_cold, cold)[0],
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=machine.RESULTS)
    parser.add_argument("--rows", type=int, help="only the first so many rows of each file")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--only", nargs="+", help="heads whose names have one of these words")
    options = parser.parse_args()
    problem = read_problem(options.rows)
    about = machine.description("torch", "numpy")
    about["rows"] = (
        f"{len(problem.train):,} to learn from, {len(problem.test):,} to test, "
        f"{len(problem.test_cold):,} of cold items"
    )
    about["items"] = f"{len(problem.vectors):,}, of which {problem.n_warm:,} are not cold"
    result: dict[str, Any] = {"about": about, "rows": []}
    print(about, flush=True)
    for case in cases(problem):
        if options.only and not any(word in case["head"] for word in options.only):
            continue
        result["rows"].append({"head": case["head"], **run(case, problem, options.epochs)})
        print(result["rows"][-1], flush=True)
        machine.write(NAME, result, options.output)
    print("\n".join(tables.recommend(result)))


if __name__ == "__main__":
    main()
