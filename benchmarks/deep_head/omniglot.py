"""1,623 handwritten characters: the paper's own experiment in kind.

Its section 6: where features are small and dense a linear model on the trellis fails, and a network
with two layers of 500 ReLU units on the same trellis does not. Here on Omniglot (35×35 pixels, 16
drawers to learn each character from and 4 to test): a linear model, that network, and a small
convolutional network, each with full softmax and with TrellisSoftmax. All classes are equally
frequent; codebooks are *random*, or *learned*: re-assigned once, after a quarter of the training,
so that classes with similar mean hidden vectors share edges.

The data set is looked for in the folder that --data or the environment variable LTLS_DATA names
(omniglot_train.txt.xz, omniglot_test.txt.xz). Writes deep_head_omniglot.json after every row, in
under four minutes on an H200; torch, triton and numpy are all it needs:

    PYTHONPATH=src python -m benchmarks.deep_head.omniglot --data FOLDER

A small version, for a CPU:

    OMP_NUM_THREADS=1 python -m benchmarks.deep_head.omniglot --small --output FOLDER

`--check` trains nothing: it compares what is stored with what we want, and fails below that.
"""

from __future__ import annotations

import argparse
import itertools
import lzma
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from benchmarks import machine, tables
from benchmarks.deep_head.heads import (
    Centroids,
    Full,
    Head,
    Trellis,
    frequency_and_similarity,
    schedule,
    scores_of,
)

NAME = "deep_head_omniglot"

SIDE, BATCH = 35, 512
REASSIGN_AFTER = 1 / 4  # of the training
VALIDATION = 8  # one in so many of the rows to learn from chooses the learning rate
RATES = (1e-3, 3e-3)
EPOCHS = {"linear": 30, "2×500 ReLU": 40, "convolutional": 30}
SHORT = 1 / 8  # of the epochs, to choose a learning rate
MAX_LOSS = 1.0  # points of P@1 that a trellis may lose on the convolutional network


def read(path: Path, n_rows: int | None = None) -> tuple[Tensor, Tensor]:
    """Return dense images of shape (rows, 1, SIDE, SIDE) and labels of a file in XMC format."""
    with lzma.open(path, "rt") as file:
        n, size, _ = map(int, file.readline().split())
        n = n if n_rows is None else min(n, n_rows)
        images, labels = np.zeros((n, size), np.float32), np.empty(n, np.int64)
        for row, line in zip(range(n), file, strict=False):
            label, *pairs = line.split()
            labels[row] = int(label)
            cells = np.array([pair.split(":") for pair in pairs], np.float32).reshape(-1, 2)
            images[row, cells[:, 0].astype(np.int64)] = cells[:, 1]
    return torch.from_numpy(images).view(-1, 1, SIDE, SIDE), torch.from_numpy(labels)


def bent(images: Tensor) -> Tensor:
    """Shift, turn, stretch and shear every image a little: 16 drawers are few."""
    n, device = len(images), images.device
    change = torch.randn(n, 2, 3, device=device) * torch.tensor([0.1, 0.1, 0.06], device=device)
    change = change + torch.eye(2, 3, device=device)
    grid = F.affine_grid(change, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)


def convolutional(n: int) -> nn.Module:
    """Return three blocks of n, 2n and 4n channels and a layer of 512 units."""

    def block(before: int, after: int) -> list[nn.Module]:
        return [
            nn.Conv2d(before, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]

    return nn.Sequential(
        *block(1, n), *block(n, 2 * n), *block(2 * n, 4 * n), nn.Flatten(), nn.Dropout(0.3),
        nn.Linear(4 * n * (SIDE // 8) ** 2, 512), nn.BatchNorm1d(512), nn.ReLU(),
    )  # fmt: skip


def dense() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(SIDE**2, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU()
    )


class Experiment:
    """The images, and what every network goes through."""

    def __init__(
        self, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], device: str, n: int
    ):
        self.device = device
        self.bodies: dict[str, tuple[Callable[[], nn.Module], int]] = {
            "linear": (nn.Flatten, SIDE**2),
            "2×500 ReLU": (dense, 500),
            "convolutional": (lambda: convolutional(n), 512),
        }
        self.train = tuple(part.to(device) for part in train)
        self.test = tuple(part.to(device) for part in test)
        self.n_classes = int(max(train[1].max(), test[1].max())) + 1
        held = torch.randperm(len(train[1]), generator=torch.Generator().manual_seed(0))
        held = held.to(device) % VALIDATION == 0
        self.most = tuple(part[~held] for part in self.train)
        self.held = tuple(part[held] for part in self.train)

    def learn(
        self, name: str, case: dict[str, Any], rows: tuple[Tensor, Tensor], rate: float, epochs: int
    ) -> tuple[nn.Module, Head]:
        """Train a network with a new head."""
        torch.manual_seed(0)
        make, size = self.bodies[name]
        # With channels last no convolution has to move its numbers about first.
        body = make().to(self.device, memory_format=torch.channels_last)
        head = case["make"](size, self.n_classes).to(self.device)
        images, labels = rows
        per_epoch = math.ceil(len(labels) / BATCH)
        steps = epochs * per_epoch

        def optimizers() -> torch.optim.Optimizer:
            weights = [*body.parameters(), *head.parameters()]
            return torch.optim.AdamW(weights, weight_decay=0.01, fused=self.device != "cpu")

        optimizer = optimizers()
        for step in range(steps):
            if step % per_epoch == 0:
                order = torch.randperm(len(labels), device=self.device)
            if case.get("learned") and step == int(REASSIGN_AFTER * steps):
                self.reassign(body, head, rows)
                optimizer = optimizers()
            first = step % per_epoch * BATCH
            some = order[first : first + BATCH]
            for group in optimizer.param_groups:
                group["lr"] = schedule(step, steps) * rate
            x = images[some] if name == "linear" else bent(images[some])
            x = x.contiguous(memory_format=torch.channels_last)
            optimizer.zero_grad()
            with self.cast():
                hidden = body(x)
            head.loss(hidden.float(), labels[some]).backward()
            optimizer.step()
        return body.eval(), head.eval()

    def cast(self) -> torch.autocast:
        """Return what lets products and convolutions run in bf16, on a GPU."""
        on = self.device != "cpu"
        return torch.autocast("cuda" if on else "cpu", torch.bfloat16, enabled=on)

    @torch.no_grad()
    def reassign(self, body: nn.Module, head: Trellis, rows: tuple[Tensor, Tensor]) -> None:
        """Let classes with similar mean hidden vectors share edges."""
        found = Centroids(self.n_classes, head.softmax.in_features, self.device)
        body.eval()
        for x, y in zip(*(part.split(2048) for part in rows), strict=True):
            with self.cast():
                hidden = body(x)
            found.add(hidden, y)
        body.train()
        counts = torch.ones(self.n_classes)
        paths = frequency_and_similarity(
            self.n_classes, head.softmax.width, counts, found.mean(), 0
        )
        head.reassign(paths, counts)

    @torch.no_grad()
    def score(self, body: nn.Module, head: Head, rows: tuple[Tensor, Tensor]) -> dict[str, float]:
        """Return P@1, recall@5 and the mean negative log-likelihood."""

        def hidden(x: Tensor) -> Tensor:
            with self.cast():
                return body(x).float()

        parts = zip(*(part.split(2048) for part in rows), strict=True)
        return scores_of(head, ((hidden(x), y) for x, y in parts))

    def run(self, name: str, case: dict[str, Any], epochs: int) -> dict[str, Any]:
        """Tune, train and test one network with one head."""
        start = time.perf_counter()
        tried = {}
        for rate in RATES:
            body, head = self.learn(name, case, self.most, rate, max(1, int(SHORT * epochs)))
            tried[rate] = self.score(body, head, self.held)["NLL"]
        rate = min(tried, key=lambda rate: tried[rate])
        tuned = time.perf_counter()
        body, head = self.learn(name, case, self.train, rate, epochs)
        found = self.score(body, head, self.test)
        print(f"{tuned - start:.1f} s to tune, {time.perf_counter() - tuned:.1f} s", flush=True)
        seconds = time.perf_counter() - tuned
        return {"parameters": head.size, "rate": rate, "seconds": seconds, **found}


def cases() -> Iterator[dict[str, Any]]:
    """Name networks and heads, those first without which the comparison says nothing."""
    for round_ in (True, False):
        for network in reversed(EPOCHS):
            if round_:
                yield {"network": network, "head": "full softmax", "make": Full}
            for width, learned in itertools.product((32, 8, 2), (True, False)):
                if round_ == (learned and width > 2):
                    yield {
                        "network": network,
                        "head": f"trellis, width {width}, {'learned' if learned else 'random'}",
                        "make": lambda d, n, w=width: Trellis(d, n, w, assignment=mixed(n)),
                        "learned": learned,
                    }


def mixed(n_classes: int) -> Tensor:
    """Return a random codebook; the labels of this set come in the order of their alphabets."""
    return torch.randperm(n_classes, generator=torch.Generator().manual_seed(1))


def check(rows: list[dict[str, Any]]) -> int:
    """Print how far the best trellis is below the full softmax on the convolutional network."""
    done = [row for row in rows if "error" not in row and row["network"] == "convolutional"]
    at = {row["head"]: 100 * row["P@1"] for row in done}
    full = at.pop("full softmax")
    best = max(at, key=lambda head: at[head])
    good = at[best] >= full - MAX_LOSS
    words = f"{best} less full softmax: P@1 {at[best] - full:+.2f} points"
    print(f"{'ok' if good else 'MISSED':7} {words}; target at least {-MAX_LOSS:+}")
    return int(not good)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=machine.RESULTS)
    parser.add_argument("--data", type=Path, default=os.environ.get("LTLS_DATA"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="does it work at all?")
    parser.add_argument("--only", nargs="+", choices=EPOCHS, default=list(EPOCHS), help="networks")
    parser.add_argument("--check", action="store_true", help="only check what is stored")
    parser.add_argument("--seconds", type=float, default=225, help="after which nothing is begun")
    options = parser.parse_args()
    if options.check:
        sys.exit(check(machine.read(NAME, options.output)["rows"]))
    if options.data is None:
        parser.error("--data must name the folder of the data set, or LTLS_DATA")
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    start = time.perf_counter()
    n_rows = 128 if options.small else None
    parts = [read(options.data / f"omniglot_{part}.txt.xz", n_rows) for part in ("train", "test")]
    of = Experiment(*parts, options.device, 4 if options.small else 64)
    about = machine.description("torch", "numpy")
    if options.device != "cpu":
        about["gpu"] = torch.cuda.get_device_name()
    about["rows"] = f"{len(parts[0][1]):,} to learn from, {len(parts[1][1]):,} to test"
    epochs = ", ".join(f"{n} epochs ({name})" for name, n in EPOCHS.items())
    about["training"] = f"AdamW, batches of {BATCH}, {epochs}, bf16 products on a GPU"
    rows: list[dict[str, Any]] = []
    result = {"about": about, "rows": rows}
    longest = dict.fromkeys(EPOCHS, 0.0)
    order = list(EPOCHS)
    for case in cases():
        name = case["network"]
        if name not in options.only:
            continue
        row, begun = {"network": name, "head": case["head"]}, time.perf_counter()
        if begun - start + longest[name] > options.seconds:
            row["error"] = "not run: the time was over"
        else:
            try:
                row |= of.run(name, case, 4 if options.small else EPOCHS[name])
            except Exception as error:
                row["error"] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
            longest[name] = max(longest[name], time.perf_counter() - begun)
        rows.append(row)
        rows.sort(key=lambda row: order.index(row["network"]))
        print(row, flush=True)
        about["took"] = f"{time.perf_counter() - start:.0f} s"
        machine.write(NAME, result, options.output)
    print("\n".join(tables.heads_table(result)))


if __name__ == "__main__":
    main()
