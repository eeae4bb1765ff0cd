"""What a second thread gives: learning in batches, predicting, and services that share a predictor.

    python benchmarks/threads.py [--sets SET …]

Writes docs/benchmarks/threads.{json,md}. The data sets are looked for in the folder that LTLS_DATA
names.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import machine
import sets

from ltls import LTLSClassifier, readers
from ltls.metrics import precision_at_k

SETS = ("debtags", "icd10cm", "debfiles")
BATCH = 64
REPEATS = 3
LARGE = 500_000  # rows: one pass over more, since only batches and threads are compared
# A single trellis, so that threads can only share its batches.
WAYS: dict[str, dict[str, Any]] = {
    "one row after another": {"batch_size": 1, "n_jobs": 1},
    f"batches of {BATCH}, 1 thread": {"batch_size": BATCH, "n_jobs": 1},
    f"batches of {BATCH}, 2 threads": {"batch_size": BATCH, "n_jobs": 2},
}


def learning(train: readers.Dataset, test: readers.Dataset) -> dict[str, dict[str, float]]:
    """Return P@1 and seconds of every way to learn a single trellis."""
    y, y_test = (d.y if train.single_label else d.Y for d in (train, test))
    epochs: Any = 1 if train.n_rows > LARGE else "auto"
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    found = {}
    for _ in range(1 if train.n_rows > LARGE else REPEATS):
        for way, settings in WAYS.items():
            model = LTLSClassifier(n_trellises=1, rescore=0, epochs=epochs, random_state=0)
            start = time.perf_counter()
            model.set_params(**settings).fit(train.X, y)
            times[way].append(time.perf_counter() - start)
            found[way] = precision_at_k(y_test, model.predict_topk(test.X, 1)[0], 1)
    return {way: {"p1": found[way], "seconds": statistics.median(times[way])} for way in WAYS}


def predicting(model: LTLSClassifier, X: Any) -> dict[str, float]:
    """Return how many times as fast two threads are, in one call and in calls of their own."""
    one, two = (machine.seconds(lambda n=n: topk(model, X, n)) for n in (1, 2))
    predictor = model.predictor(k=5)
    row, rows = X[:1], X[:64]
    return {
        "a batch": one / two,
        "a predictor, 1 row a call": shared(lambda: predictor(row), 20_000),
        "a predictor, 64 rows a call": shared(lambda: predictor(rows), 2000),
    }


def topk(model: LTLSClassifier, X: Any, n_jobs: int) -> object:
    return model.set_params(n_jobs=n_jobs).predict_topk(X, 5)


def shared(call: Callable[[], object], n_calls: int) -> float:
    """Return the throughput of two threads that call, over that of one; medians in turn."""

    def seconds(n_threads: int) -> float:
        def work(_: int) -> None:
            for _ in range(n_calls // n_threads):
                call()

        with ThreadPoolExecutor(n_threads) as threads:
            start = time.perf_counter()
            list(threads.map(work, range(n_threads)))
            return time.perf_counter() - start

    seconds(2)
    return statistics.median(seconds(1) / seconds(2) for _ in range(5))


def report(result: dict[str, Any]) -> str:
    lines = ["# What a second thread gives", ""]
    lines += [f"- {key}: {value}" for key, value in result["about"].items()]
    lines += ["", "## Learning a single trellis of the default width", ""]
    lines += [
        "Rows of a batch find their steps from the same weights, so threads can share them, and",
        "the result is the same for any number of threads. debfiles: one pass.",
        "",
    ]
    rows = []
    for name, ways in result["learning"].items():
        first = next(iter(ways.values()))
        for way, r in ways.items():
            points = 100 * (r["p1"] - first["p1"])
            cells = [f"{r['p1']:.4f}", f"{points:+.2f}", f"{r['seconds']:.2f}"]
            rows.append([name, way, *cells, f"{first['seconds'] / r['seconds']:.2f}"])
    heads = ["set", "", "P@1", "points", "seconds", "times as fast"]
    lines += machine.table(heads, rows, 2)
    lines += ["", "## Predicting with two threads, times as fast as with one", ""]
    lines += ["The default model, five labels a row; a predictor is called by each thread.", ""]
    ways = list(next(iter(result["predicting"].values()), {}))
    rows = [[n, *(f"{r[way]:.2f}" for way in ways)] for n, r in result["predicting"].items()]
    lines += machine.table(["set", *ways], rows)
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=SETS, metavar="SET")
    args = parser.parse_args()
    if "LTLS_DATA" not in os.environ:
        parser.error("LTLS_DATA must name the folder with the data sets")
    result: dict[str, Any] = {"about": machine.description(), "learning": {}, "predicting": {}}
    for name in args.sets:
        files = sets.find(Path(os.environ["LTLS_DATA"]), name)
        if files is None:
            parser.error(f"{name} is not in the folder that LTLS_DATA names")
        train, test = map(readers.read, files)
        result["learning"][name] = learning(train, test)
        if train.n_rows <= LARGE:
            y = train.y if train.single_label else train.Y
            model = LTLSClassifier(random_state=0, n_jobs=-1).fit(train.X, y)
            result["predicting"][name] = predicting(model, test.X)
        machine.write(machine.RESULTS, "threads", result, report(result))
    print(report(result))


if __name__ == "__main__":
    main()
