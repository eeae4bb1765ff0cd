"""1,623 handwritten characters: the paper's own experiment in kind.

Its section 6: where features are small and dense a linear model on the trellis fails, and a network
with two layers of 500 ReLU units on the same trellis does not. Here on Omniglot (35×35 pixels, 16
drawers to learn each character from and 4 to test): a linear model, that network, and a small
convolutional network, each with full softmax and with TrellisSoftmax. Codebooks are learned: random
ones are re-assigned once, after a quarter of the training, so that classes with similar mean hidden
vectors share edges.

The data set is looked for in the folder that --data or the environment variable LTLS_DATA names
(omniglot_train.txt.xz, omniglot_test.txt.xz). Writes deep_head_omniglot.json after every row, in
under four minutes on an H200; torch, triton and numpy are all it needs:

    PYTHONPATH=src python -m benchmarks.deep_head.omniglot --data FOLDER

A small version, for a CPU:

    OMP_NUM_THREADS=1 python -m benchmarks.deep_head.omniglot --small --output FOLDER
"""

from __future__ import annotations

import lzma
import math
import os
import time
from collections.abc import Callable, Iterator
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
    scores_of,
)

NAME = "deep_head_omniglot"

SIDE, BATCH = 35, 512
REASSIGN_AFTER = 1 / 4  # of the training
VALIDATION = 8  # one in so many of the rows to learn from chooses the learning rate
RATES = (1e-3, 3e-3)
EPOCHS = {"linear": 30, "2×500 ReLU": 40, "convolutional": 30}
SHORT = 1 / 8  # of the epochs, to choose a learning rate


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
        self, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], device: str, small: bool
    ) -> None:
        self.device, self.small = device, small
        self.bodies: dict[str, tuple[Callable[[], nn.Module], int]] = {
            "linear": (nn.Flatten, SIDE**2),
            "2×500 ReLU": (dense, 500),
            "convolutional": (lambda: convolutional(4 if small else 64), 512),
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
            if isinstance(head, Trellis) and step == int(REASSIGN_AFTER * steps):
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
        sums = torch.zeros(self.n_classes, head.softmax.in_features, device=self.device)
        body.eval()
        for x, y in zip(*(part.split(2048) for part in rows), strict=True):
            with self.cast():
                hidden = body(x)
            sums.index_add_(0, y, hidden.float())
        body.train()
        counts = torch.bincount(rows[1], minlength=self.n_classes)[:, None]
        # One more row of the overall mean, for classes that no row has.
        head.reassign((sums + sums.sum(0) / len(rows[1])) / (counts + 1))

    @torch.no_grad()
    def score(self, body: nn.Module, head: Head, rows: tuple[Tensor, Tensor]) -> dict[str, float]:
        """Return P@1, recall@5 and the mean negative log-likelihood."""

        def hidden(x: Tensor) -> Tensor:
            with self.cast():
                return body(x).float()

        parts = zip(*(part.split(2048) for part in rows), strict=True)
        return scores_of(head, ((hidden(x), y) for x, y in parts))

    def run(self, case: dict[str, Any]) -> dict[str, Any]:
        """Tune, train and test one network with one head."""
        name = case["network"]
        epochs = 4 if self.small else EPOCHS[name]
        tried = {}
        for rate in RATES:
            body, head = self.learn(name, case, self.most, rate, max(1, int(SHORT * epochs)))
            tried[rate] = self.score(body, head, self.held)["NLL"]
        rate = min(tried, key=lambda rate: tried[rate])
        start = time.perf_counter()
        body, head = self.learn(name, case, self.train, rate, epochs)
        found = self.score(body, head, self.test)
        seconds = time.perf_counter() - start
        return {"parameters": head.size, "rate": rate, "seconds": seconds, **found}


def cases() -> Iterator[dict[str, Any]]:
    """Name networks and heads."""
    for network in EPOCHS:
        yield {"network": network, "head": "full softmax", "make": Full}
        for width in (2, 8, 32):
            yield {
                "network": network,
                "head": f"trellis, width {width}, learned",
                "make": lambda d, n, w=width: Trellis(d, n, w, assignment="random"),
            }


def main() -> None:
    parser = arguments(__doc__, seconds=225)
    parser.add_argument("--data", type=Path, default=os.environ.get("LTLS_DATA"))
    parser.add_argument("--networks", nargs="+", choices=EPOCHS, default=list(EPOCHS))
    options = parser.parse_args()
    if options.data is None:
        parser.error("--data must name the folder of the data set, or LTLS_DATA")
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    n_rows = 128 if options.small else None
    parts = [read(options.data / f"omniglot_{part}.txt.xz", n_rows) for part in ("train", "test")]
    of = Experiment(*parts, options.device, options.small)
    about = description(options.device)
    about["rows"] = f"{len(parts[0][1]):,} to learn from, {len(parts[1][1]):,} to test"
    epochs = ", ".join(f"{n} epochs ({name})" for name, n in EPOCHS.items())
    about["training"] = f"AdamW, batches of {BATCH}, {epochs}, bf16 products on a GPU"
    chosen = (case for case in cases() if case["network"] in options.networks)
    result = compare(NAME, {"about": about}, chosen, of.run, options)
    print("\n".join(tables.heads_table(result)))


if __name__ == "__main__":
    main()
