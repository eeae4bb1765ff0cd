"""Recommendation of the next item: semantic IDs beside other codebooks and other output layers.

    python -m benchmarks.deep_head.recommend amazon.npz debian.npz

trains on the problems that `benchmarks.deep_head.next_items` writes, which describes them. Every
model has the better of two learning rates by recall on 4,096 of the training rows. Recall and
nDCG at 10 are those among all items, on test rows whose target is not cold. *cold* is the recall at
10 of test rows with cold targets among all items, and *cold among cold* among the cold ones, as in
a list of new arrivals.

Writes deep_head_recommend_NAME.json after every model, in under ten minutes on a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from benchmarks.deep_head import tables
from benchmarks.deep_head.heads import (
    Full,
    Head,
    Trellis,
    arguments,
    compare,
    description,
    schedule,
)
from ltls.torch import TrellisEmbedding
from ltls.torch.codebooks import TablePaths

NAME = "deep_head_recommend"
K = 10
SIZE, WIDTH, BATCH, EPOCHS, RATES = 64, 32, 1024, 10, (1e-3, 4e-3)
N_NEGATIVES = 1024  # of sampled softmax
N_HELD_OUT = 4096  # training rows to choose the rate by


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
class Codebook:
    """The paths of all items in every trellis, (n_items, n_trellises)."""

    paths: Tensor
    n_paths: int

    def modules(self, n_labels: int) -> list[TablePaths]:
        """Return the codebooks of the first labels."""
        return [TablePaths(column, self.n_paths) for column in self.paths[:n_labels].T]


class Problem:
    """Labels are numbered by decreasing frequency, the cold ones last."""

    def __init__(self, path: Path, device: str) -> None:
        with np.load(path) as arrays:

            def tensor(name: str, dtype: torch.dtype) -> Tensor:
                return torch.from_numpy(arrays[name]).to(device, dtype)

            def rows(name: str) -> Rows:
                items, y = (tensor(f"{name}_{part}", torch.int64) for part in ("items", "y"))
                return Rows(items, tensor(f"{name}_weights", torch.float32), y)

            self.books = {
                name: Codebook(
                    torch.from_numpy(arrays[f"{name}_paths"]).to(torch.int64),
                    int(arrays[f"{name}_n_paths"]),
                )
                for name in ("one", "three", "input")
            }
            self.n_warm = int(arrays["n_warm"])
            every, test = rows("train"), rows("test")
        self.n_items, self.n_inputs = (len(self.books[name].paths) for name in ("one", "input"))
        shuffled = torch.randperm(len(every), generator=torch.Generator().manual_seed(0)).to(device)
        n_held_out = min(N_HELD_OUT, len(every) // 20)
        self.valid, self.train = (
            every.at(part) for part in shuffled.split([n_held_out, len(every) - n_held_out])
        )
        self.test, self.test_cold = (test.at(part) for part in self.parts(test.y))

    def parts(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return which targets are not cold, and which are."""
        return y < self.n_warm, y >= self.n_warm


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
        return model.head.softmax.topk(hidden, K, among=among)[0]
    scores = model.head.linear(hidden)
    if among is None:
        return scores.topk(K).indices
    return among[scores[:, among].topk(min(K, len(among))).indices]


@torch.no_grad()
def ranked(model: Model, rows: Rows, among: Tensor | None = None) -> tuple[float, float]:
    """Return recall and nDCG at K."""
    recall = gain = 0.0
    for part in torch.arange(len(rows), device=rows.y.device).split(2048):
        some = rows.at(part)
        found = best(model, some, among) == some.y[:, None]
        recall += float(found.sum())
        discount = torch.log2(torch.arange(2, found.shape[1] + 2, device=found.device))
        gain += float((found / discount).sum())
    return recall / len(rows), gain / len(rows)


def train(model: Model, rows: Rows, epochs: int, rate: float) -> float:
    """Train, and return the seconds that it took."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    steps = max(1, epochs * (len(rows) // BATCH))
    start, step = time.perf_counter(), 0
    while step < steps:
        for some in torch.randperm(len(rows), device=rows.y.device).split(BATCH):
            for group in optimizer.param_groups:
                group["lr"] = rate * schedule(min(step, steps), steps)
            batch = rows.at(some)
            optimizer.zero_grad()
            model.head.loss(model(batch), batch.y).backward()
            optimizer.step()
            step += 1
    if rows.y.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def cases(problem: Problem) -> Iterator[dict[str, Any]]:
    """Name the models: output layer, codebook, input table."""
    n, n_warm, n_inputs = problem.n_items, problem.n_warm, problem.n_inputs

    def table() -> nn.Module:
        return nn.Embedding(n_inputs, SIZE)

    yield {"head": "full softmax", "make": lambda: Model(table(), Full(SIZE, n))}
    yield {"head": "sampled softmax", "make": lambda: Model(table(), Sampled(SIZE, n))}
    for name in ("random", "frequency"):
        for n_trellises, words in ((1, "trellis"), (3, "three trellises")):
            options = {"assignment": name, "n_trellises": n_trellises}
            yield {
                "head": f"{words}, {name} codebook",
                "make": lambda options=options: Model(table(), Trellis(SIZE, n, WIDTH, **options)),
            }
    for words, name, small in (
        ("trellis, semantic IDs", "one", False),
        ("three trellises, semantic IDs", "three", False),
        ("three trellises, semantic IDs, `TrellisEmbedding`", "three", True),
    ):
        book = problem.books[name]

        def make(book: Codebook = book, small: bool = small) -> Model:
            given = table()
            if small:
                inputs = problem.books["input"]
                books = inputs.modules(n_inputs)
                given = TrellisEmbedding(n_inputs, SIZE, WIDTH, len(books), books)
            books = book.modules(n_warm)
            options = {"n_trellises": len(books), "assignment": books}
            return Model(given, Trellis(SIZE, n_warm, WIDTH, **options))

        def add(model: Model, book: Codebook = book) -> None:
            model.head.softmax.add_classes(book.paths[n_warm:])

        yield {"head": words, "make": make, "add": add}


def run(case: dict[str, Any], problem: Problem, epochs: int) -> dict[str, Any]:
    """Train one model with every rate, and test the one that is best on held-out rows."""
    chosen: tuple[float, float, float, Model] | None = None
    for rate in RATES:
        torch.manual_seed(0)
        model = case["make"]().to(problem.train.y.device)
        seconds = train(model, problem.train, epochs, rate)
        recall, _ = ranked(model, problem.valid)
        if chosen is None or recall > chosen[0]:
            chosen = recall, rate, seconds, model
    assert chosen is not None
    _, rate, seconds, model = chosen
    parameters = model.head.size
    if "add" in case:
        case["add"](model)
    recall, gain = ranked(model, problem.test)
    cold = torch.arange(problem.n_warm, problem.n_items, device=problem.train.y.device)
    return {
        "parameters": parameters,
        "input parameters": sum(p.numel() for p in model.table.parameters()),
        "rate": rate,
        "recall": recall,
        "nDCG": gain,
        "cold": ranked(model, problem.test_cold)[0],
        "cold among cold": ranked(model, problem.test_cold, cold)[0],
        "seconds": seconds,
    }


def main() -> None:
    parser = arguments(__doc__, seconds=600)
    parser.add_argument("problems", type=Path, nargs="+")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    options = parser.parse_args()
    for path in options.problems:
        problem = Problem(path, options.device)
        about = description(options.device)
        about["rows"] = (
            f"{len(problem.train) + len(problem.valid):,} to learn from, {len(problem.test):,} to "
            f"test, {len(problem.test_cold):,} of cold items"
        )
        about["items"] = f"{problem.n_items:,}, of which {problem.n_warm:,} are not cold"
        result = compare(
            f"{NAME}_{path.stem}",
            {"about": about},
            cases(problem),
            lambda case, problem=problem: run(case, problem, options.epochs),
            options,
        )
        print("\n".join(tables.recommend_amazon(result)))


if __name__ == "__main__":
    main()
