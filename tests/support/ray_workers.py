"""Rows to train on, and the processes of a local Ray, to kill some of them."""

import contextlib
import os
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa


def clusters_of_rows(n_rows, n_labels=12, n_features=40, seed=0):
    """Sparse rows around a random center per label, as a table; and the labels as a list."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(99).choice(n_features, (n_labels, 4))
    labels = rng.integers(n_labels, size=n_rows)
    noise = rng.integers(n_features, size=(n_rows, 2))
    indices = np.concatenate([centers[labels], noise], axis=1)
    values = rng.uniform(0.5, 1.5, indices.shape).astype(np.float32)
    names = [f"label {label}" for label in labels]
    table = pa.table(
        {"id": np.arange(n_rows), "i": list(indices), "v": list(values), "label": names}
    )
    return table, names


def dense(table, n_features=40):
    """The rows as a matrix, computed with loops."""
    X = np.zeros((len(table), n_features), np.float32)
    for row, (indices, values) in enumerate(
        zip(table["i"].to_pylist(), table["v"].to_pylist(), strict=True)
    ):
        for index, value in zip(indices, values, strict=True):
            X[row, index] += np.float32(value)
    return X


def workers(*titles):
    """The ids of the processes of our own Ray that run a task now."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            title = (path / "cmdline").read_bytes().decode(errors="replace")
            raylet = _parent(path)
            if title.startswith(titles) and _parent(Path("/proc", str(raylet))) == os.getpid():
                found.append(int(path.name))
    return sorted(found)


def _parent(path):
    return int((path / "stat").read_text().rpartition(")")[2].split()[1])


@contextlib.contextmanager
def killing(seconds, *titles, most=3):
    """Kill a worker with SIGKILL at each of some moments of a block; yield the killed ones."""
    killed, done = [], threading.Event()

    def run():
        for pause in seconds:
            time.sleep(pause)
            while not done.is_set() and len(killed) < most:
                if found := workers(*titles):
                    os.kill(found[0], 9)
                    killed.append(found[0])
                    break
                time.sleep(0.005)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield killed
    finally:
        done.set()
        thread.join()
