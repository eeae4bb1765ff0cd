"""A million vectors and 100,000 labels: `ltls.torch.probe` beside a full softmax layer.

Vectors are drawn around random centres and written to a .npy file, which is memory-mapped. The full
softmax is `nn.Linear` with cross-entropy in bfloat16, trained by AdamW on vectors in the memory of
the GPU, with two learning rates; by torch and, where it is installed, by cut-cross-entropy, which
never stores all scores. Prints and stores seconds, memory of the GPU, and P@1 on 20,000 other
vectors.

`probe` needs the compiled engine: install ltls, or put its engine into src/ltls/core. Without it,
the full softmax alone is measured. On an H200, in under ten minutes:

    PYTHONPATH=src python -m benchmarks.deep_head.probe

A small version, for a CPU:

    OMP_NUM_THREADS=1 python -m benchmarks.deep_head.probe --small --output FOLDER
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import machine
from benchmarks.deep_head.heads import (
    CutCrossEntropy,
    Full,
    arguments,
    compare,
    description,
    schedule,
)

NAME = "deep_head_probe"
N_ROWS, N_LABELS, D, N_TEST = 1_000_000, 100_000, 256, 20_000
NOISE = 2.3  # times the deviation of centres: some rows are nearer to another one
EPOCHS, BATCH, STEPS = 8, 2048, 400  # at least so many steps per epoch
RATES = (2e-3, 1e-2)


class Vectors:
    """Rows around centres, on disk."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.n_rows, self.n_labels, self.d = options.rows, options.labels, options.features
        rng = np.random.default_rng(0)
        centres = rng.standard_normal((self.n_labels, self.d), np.float32)
        n_test = min(N_TEST, self.n_rows // 10)
        self.y = rng.integers(0, self.n_labels, self.n_rows + n_test)
        self.path = folder / "vectors.npy"
        out = np.lib.format.open_memmap(self.path, "w+", np.float32, (self.n_rows + n_test, self.d))
        for first in range(0, len(out), 1 << 16):
            some = slice(first, first + (1 << 16))
            noise = rng.standard_normal((len(out[some]), self.d), np.float32)
            out[some] = centres[self.y[some]] + np.float32(options.noise) * noise
        out.flush()
        del out

    def rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return vectors and labels to train on, and to test with; vectors are mapped."""
        X, n = np.load(self.path, mmap_mode="r"), self.n_rows
        return X[:n], self.y[:n], X[n:], self.y[n:]


def with_probe(data: Vectors, device: str) -> dict[str, Any]:
    from ltls.torch import probe

    X, y, X_test, y_test = data.rows()
    start = time.perf_counter()
    model = probe(X, y, device=device, random_state=0)
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    right = model.predict(np.array(X_test)) == y_test
    return {
        "train s": round(seconds, 1),
        "P@1": float(right.mean()),
        "µs per row, on a CPU": round(1e6 * (time.perf_counter() - start) / len(y_test), 1),
    }


def with_softmax(data: Vectors, device: str, rate: float, kind: type[Full]) -> dict[str, Any]:
    X, y, X_test, y_test = data.rows()
    torch.manual_seed(0)
    start = time.perf_counter()
    rows, labels = torch.from_numpy(np.array(X)).to(device), torch.from_numpy(y).to(device)
    layer = kind(data.d, data.n_labels).to(device)
    fused = device.startswith("cuda")
    optimizer = torch.optim.AdamW(layer.parameters(), rate, weight_decay=0.0, fused=fused)
    batch = min(BATCH, len(rows) // STEPS)
    steps = EPOCHS * -(-len(rows) // batch)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: schedule(step, steps))
    for _ in range(EPOCHS):
        for some in torch.randperm(len(rows), device=device).split(batch):
            with torch.autocast(device.split(":")[0], torch.bfloat16):
                loss = layer.loss(rows[some], labels[some])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
    with torch.no_grad():
        test = torch.from_numpy(np.array(X_test)).to(device)
        best = torch.cat([layer.linear(some).argmax(1) for some in test.split(1024)]).cpu().numpy()
    seconds = time.perf_counter() - start
    return {"train s": round(seconds, 1), "P@1": float((best == y_test).mean())}


def measured(run: Callable[..., dict[str, Any]], data: Vectors, device: str) -> dict[str, Any]:
    """Return what a run finds, and its peak memory on a GPU."""
    if not device.startswith("cuda"):
        return run(data, device)
    torch.cuda.reset_peak_memory_stats()
    return run(data, device) | {"gpu memory": torch.cuda.max_memory_allocated()}


def main() -> None:
    parser = arguments(__doc__, seconds=540)
    parser.add_argument("--rows", type=int, default=N_ROWS)
    parser.add_argument("--labels", type=int, default=N_LABELS)
    parser.add_argument("--features", type=int, default=D)
    parser.add_argument("--noise", type=float, default=NOISE)
    options = parser.parse_args()
    if options.small:
        options.rows, options.labels, options.features, options.noise = 4_000, 200, 16, 0.5
    result: dict[str, Any] = {"about": description(options.device)}
    result |= {"rows": [], "n_rows": options.rows, "n_labels": options.labels}
    runs: dict[str, Any] = {"ltls.torch.probe": with_probe}
    softmax: dict[str, type[Full]] = {"full softmax": Full}
    if find_spec("cut_cross_entropy") is not None:
        softmax["cut-cross-entropy"] = CutCrossEntropy
    for rate in RATES:
        for name, kind in softmax.items():
            runs[f"{name}, rate {rate:g}"] = partial(with_softmax, rate=rate, kind=kind)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        data = Vectors(Path(folder), options)
        machine.say(f"vectors written in {time.perf_counter() - start:.0f} s")
        compare(
            NAME,
            result,
            [{"head": name} for name in runs],
            lambda case: measured(runs[case["head"]], data, options.device),
            options,
        )


if __name__ == "__main__":
    main()
