"""One contender's speed on one data set, in a process of its own.

    python contender.py CONTENDER DATA OUT SETTINGS

The contenders are those of benchmarks/accuracy, with a finer clock: training, loading, batches on
one core and on two, single rows, memory. It runs in the contender's environment, which has this
repository on its path, and imports nothing of ours but the other contenders.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.accuracy import contender

ROWS = 2000  # that are predicted one by one
SECONDS = 3.0  # of repeating a batch


class Omikuji(contender.Omikuji):
    """Predicts a list of pairs."""

    def load(self) -> None:
        from omikuji import Model

        self.model = Model.load(self.folder)

    def one(self, row: int) -> object:
        return self.model.predict(self.rows[row], top_k=contender.K)


class Napkinxc(contender.Napkinxc):
    """Predicts rows of a matrix."""

    def __init__(self, data: Any, folder: str, settings: Any) -> None:
        super().__init__(data, folder, settings)
        self.folder = folder

    def load(self) -> None:
        from napkinxc.models import PLT

        self.model = PLT(self.folder)
        self.model.load()

    def one(self, row: int) -> object:
        return self.model.predict(self.single[row], top_k=contender.K)


class Pecos(contender.Pecos):
    """Predicts rows of a matrix."""

    def load(self) -> None:
        from pecos.xmc.xlinear.model import XLinearModel

        self.model = XLinearModel.load(self.folder, is_predict_only=True)

    def one(self, row: int) -> object:
        return self.model.predict(self.single[row], only_topk=contender.K)


class LTLS(contender.LTLS):
    """Ours, with the callable for services."""

    def load(self) -> None:
        import ltls

        self.model = ltls.load(self.path)
        self.answer = self.model.predictor(contender.K)

    def one(self, row: int) -> object:
        return self.answer(*self.pairs[row])

    def use_cores(self, n: int) -> None:
        self.model.set_params(n_jobs=n)


CONTENDERS = {"omikuji": Omikuji, "napkinxc": Napkinxc, "pecos": Pecos, "ltls": LTLS}


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def shortest(work: Callable[[], object]) -> float:
    """Return the time of a call that other work on the machine has disturbed least."""
    times = [seconds(work)]
    while sum(times) < SECONDS and len(times) < 20:
        times.append(seconds(work))
    return min(times)


def on_cores(n: int, one: Any, work: Callable[[], object]) -> float:
    """Time a call; limits the process to n cores where supported."""
    every = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, every[:n])
    if hasattr(one, "use_cores"):
        one.use_cores(n)
    time_taken = shortest(work)
    os.sched_setaffinity(0, every)
    return time_taken


def latencies(one: Any, rows: int) -> Any:
    """Return the sorted seconds of single rows."""
    for row in range(min(rows, 100)):
        one.one(row)
    return np.sort([seconds(lambda row=row: one.one(row)) for row in range(rows)])


def main() -> None:
    name, folder, out, settings = sys.argv[1:]
    model_folder = os.path.join(out, "model")
    os.makedirs(model_folder)
    data = contender.Data(folder)
    one = CONTENDERS[name](data, model_folder, json.loads(settings))
    train = seconds(one.train)
    train_peak = contender.peak_bytes()
    one.save()
    n_rows = min(ROWS, data.X_test.shape[0])
    one.single = [data.X_test[row] for row in range(n_rows)]
    one.pairs = [(row.indices, row.data) for row in one.single]
    load = seconds(lambda: (one.load(), one.one(0)))
    times = {n: on_cores(n, one, one.top) for n in (1, 2)}
    each = latencies(one, n_rows)
    measures = {
        "train_rows": data.X.shape[0],
        "train_seconds": train,
        "test_rows": data.X_test.shape[0],
        "load_seconds": load,
        "one_core_seconds": times[1],
        "two_cores_seconds": times[2],
        "p50_seconds": float(each[len(each) // 2]),
        "p99_seconds": float(each[int(len(each) * 0.99)]),
        "peak_bytes": train_peak,
        "model_bytes": contender.bytes_below(model_folder),
    }
    with open(os.path.join(out, "measures.json"), "w") as file:
        json.dump(measures, file)


if __name__ == "__main__":
    main()
